package launcher

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever a guest writes, neither of the logs that it fills stays long.
func TestTrimLogs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		said := newLines(slog.DiscardHandler)
		logs := boundedLogs(filepath.Join(dir, "serial"), filepath.Join(dir, "qemu"), said)
		var trimming sync.WaitGroup
		trimming.Go(func() { trimLogs(ctx, logs, slog.New(slog.DiscardHandler)) })
		for _, l := range logs {
			text := append(bytes.Repeat([]byte("x"), int(l.above)), "the end"...)
			if err := os.WriteFile(l.path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(interval + 1)
		synctest.Wait()
		for _, l := range logs {
			if b, err := os.ReadFile(l.path); err != nil || int64(len(b)) != l.rest ||
				!bytes.HasSuffix(b, []byte("the end")) {
				t.Errorf("%s has %d bytes, %v", l.path, len(b), err)
			}
		}
		cancel()
		trimming.Wait()
		said.close()
	})
}
