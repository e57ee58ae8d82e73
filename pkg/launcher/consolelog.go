package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// consoleInterval is the interval of looks at the serial log.
	consoleInterval = time.Second
	// consoleOverlap is the number of bytes remembered of what was written, to find the place again in a log that was
	// cut.
	consoleOverlap = 256
	// consoleAtOnce is the most that is read at a time, and maxConsoleLog the size at which the search in a log that
	// was cut ends, bytes.
	consoleAtOnce = 32 << 10
	maxConsoleLog = 4 << 20
)

// newConsoleLogCommand returns the command `virt-launcher console-log`, a container beside the launcher's.
func newConsoleLogCommand() *cobra.Command {
	runDir := names.RunDir
	cmd := &cobra.Command{
		Use:   "console-log",
		Short: "Write what the guest writes to its serial console",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(1)
			debug.SetGCPercent(collectAt)
			tick := time.NewTicker(consoleInterval)
			defer tick.Stop()
			c := consoleLog{path: filepath.Join(runDir, names.LogSerial), to: cmd.OutOrStdout()}
			return c.follow(cmd.Context(), tick.C)
		},
	}
	cmd.Flags().StringVar(&runDir, "run-dir", runDir, "where the serial console's log is")
	return cmd
}

// consoleLog copies a log that grows, and is cut now and then (see cut).
type consoleLog struct {
	path string
	to   io.Writer
	// offset is the position up to which the log was read, and last the bytes right before it.
	offset int64
	last   []byte
}

// follow copies until ctx ends, and then what is left.
func (c *consoleLog) follow(ctx context.Context, tick <-chan time.Time) error {
	for {
		if err := c.copy(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return c.copy()
		case <-tick:
		}
	}
}

// copy copies what is new.
func (c *consoleLog) copy() error {
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not yet
	}
	if err != nil {
		return fmt.Errorf("read the console's log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read the console's log: %w", err)
	}
	if info.Size() < c.offset {
		if c.offset, err = c.again(f, info.Size()); err != nil {
			return fmt.Errorf("read the console's log: %w", err)
		}
	}
	buffer := make([]byte, consoleAtOnce)
	for {
		n, err := f.ReadAt(buffer, c.offset)
		if n > 0 {
			if _, err := c.to.Write(buffer[:n]); err != nil {
				return fmt.Errorf("write the console's log: %w", err)
			}
			c.offset += int64(n)
			c.last = append(c.last, buffer[:n]...)
			c.last = bytes.Clone(c.last[max(0, len(c.last)-consoleOverlap):])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the console's log: %w", err)
		}
	}
}

// again returns the offset at which to go on in a log that was cut: after what was written last, or the beginning where
// that is not there any more.
func (c *consoleLog) again(f io.ReaderAt, size int64) (int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, min(size, maxConsoleLog)))
	if err != nil {
		return 0, err
	}
	if at := bytes.LastIndex(text, c.last); at >= 0 {
		return int64(at + len(c.last)), nil
	}
	return 0, nil
}
