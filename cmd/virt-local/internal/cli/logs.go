package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
)

type logsOptions struct {
	component, node string
	follow          bool
	tail            int
}

// showLogs writes the logs one after the other, or, when following, all at once as they grow until ctx is done.
func showLogs(ctx context.Context, out io.Writer, logs []cluster.ProcessStatus, o logsOptions) error {
	to := &lineWriter{out: out}
	if !o.follow {
		for _, l := range logs {
			if err := showLog(ctx, to, l, prefix(l, len(logs)), o); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, len(logs))
	var wg sync.WaitGroup
	for i, l := range logs {
		wg.Go(func() { errs[i] = showLog(ctx, to, l, prefix(l, len(logs)), o) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func prefix(l cluster.ProcessStatus, of int) string {
	switch {
	case of == 1:
		return ""
	case l.Node == "":
		return "[" + l.Name + "] "
	}
	return "[" + l.Node + "/" + l.Name + "] "
}

// lineWriter writes whole lines from several goroutines.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lineWriter) line(prefix string, line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := fmt.Fprintf(w.out, "%s%s\n", prefix, bytes.TrimSuffix(line, []byte("\n")))
	return err
}

func showLog(ctx context.Context, to *lineWriter, l cluster.ProcessStatus, prefix string, o logsOptions) error {
	f, err := os.Open(l.Log)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has not run yet
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	if o.tail >= 0 {
		if err := seekTail(f, o.tail); err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	r := bufio.NewReader(f)
	var part []byte
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		more, err := r.ReadBytes('\n')
		part = append(part, more...)
		if err == nil {
			if err := to.line(prefix, part); err != nil {
				return fmt.Errorf("write log: %w", err)
			}
			part = part[:0]
			continue
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read log: %w", err)
		}
		if !o.follow {
			if len(part) > 0 {
				return to.line(prefix, part)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// seekTail goes to the beginning of the last n lines.
func seekTail(f *os.File, n int) error {
	const block = 64 << 10
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	lines, at := 0, end
	buf := make([]byte, block)
	for at > 0 {
		size := min(at, block)
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			if buf[i] != '\n' || at+i == end-1 {
				continue
			}
			if lines++; lines >= n {
				if n == 0 {
					_, err = f.Seek(end, io.SeekStart)
				} else {
					_, err = f.Seek(at+i+1, io.SeekStart)
				}
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
