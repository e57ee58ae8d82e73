//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

// consoles reads what the guests say on their serial consoles, from the files that QEMU writes on the nodes: no part of
// virtkit that may be killed is between them.
type consoles struct {
	// nodes are the process ids of the nodes' inits, whose roots have the kubelets' directories.
	nodes []int

	mu       sync.Mutex
	journals map[string]*Journal
	files    map[string]*serialLog
	err      error
}

// serialLog is the file of one pod. It is read to its end even after the pod's directory is gone.
type serialLog struct {
	*os.File
	at   int64
	rest []byte
}

func newConsoles(nodes []int) *consoles {
	return &consoles{nodes: nodes, journals: map[string]*Journal{}, files: map[string]*serialLog{}}
}

// run follows the consoles until ctx is done.
func (c *consoles) run(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, f := range c.files {
				f.Close()
			}
			return
		case <-tick.C:
			c.read()
		}
	}
}

// read takes what is new.
func (c *consoles) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[string]bool{}
	for _, node := range c.nodes {
		root := fmt.Sprintf("/proc/%d/root/var/lib/kubelet/pods", node)
		paths, err := filepath.Glob(filepath.Join(root, "*/volumes/kubernetes.io~empty-dir", names.VolumeRun,
			names.LogSerial))
		c.note(err)
		for _, path := range paths {
			there[path] = true
			if c.files[path] != nil {
				continue
			}
			switch f, err := os.Open(path); {
			case err == nil:
				c.files[path] = &serialLog{File: f}
			case !errors.Is(err, os.ErrNotExist):
				c.note(err)
			}
		}
	}
	for path, f := range c.files {
		c.note(c.take(f))
		if !there[path] {
			f.Close()
			delete(c.files, path)
		}
	}
}

// note keeps the first error: without the consoles the run proves nothing.
func (c *consoles) note(err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("read a serial console: %w", err)
	}
}

// take reads one file on. The launcher shortens a long one to its end, which is then read again.
func (c *consoles) take(f *serialLog) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < f.at {
		f.at, f.rest = 0, nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, f.at, info.Size()-f.at))
	if err != nil {
		return err
	}
	f.at += int64(len(text))
	records, complaints, rest := Acknowledged(append(f.rest, text...))
	f.rest = bytes.Clone(rest)
	now := time.Now()
	for _, r := range records {
		c.journal(r.Guest).Acknowledge(r, now)
	}
	for _, complaint := range complaints {
		guest, _, _ := bytes.Cut([]byte(complaint), []byte(" "))
		c.journal(string(guest)).Refuse(complaint)
	}
	return nil
}

func (c *consoles) journal(guest string) *Journal {
	if c.journals[guest] == nil {
		c.journals[guest] = &Journal{Guest: guest}
	}
	return c.journals[guest]
}

// last is the last record that a guest has acknowledged, and when that was seen.
func (c *consoles) last(guest string) (Record, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.journal(guest)
	return j.Last, j.At
}

// check compares a guest's disk with what it has acknowledged.
func (c *consoles) check(guest, disk string) (Findings, error) {
	c.read() // what was said before the disk is read
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return Findings{}, c.err
	}
	f, err := os.Open(disk)
	if err != nil {
		return Findings{}, err
	}
	defer f.Close()
	return c.journal(guest).Check(f)
}
