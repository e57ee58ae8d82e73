package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Of programs that fetch one file at once, one does.
func TestFetchAtOnce(t *testing.T) {
	p := newPublisher(t)
	dir := t.TempDir()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			f := &Fetcher{HTTP: p.Client(), Dir: dir}
			if _, err := f.Fetch(t.Context(), p.source()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if len(p.ranges) != 1 {
		t.Errorf("the file was asked for %d times", len(p.ranges))
	}
}

// Programs that change a catalogue at once lose nothing of each other's, and a change that fails changes nothing.
func TestChangeFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "virtkit", "images.yaml")
	var wait sync.WaitGroup
	const all = 8
	for i := range all {
		wait.Go(func() {
			err := ChangeFile(t.Context(), path, func(c *Catalogue) error {
				c.Images = append(c.Images, Image{
					Name: fmt.Sprintf("mine-%d", i), Version: "1", Size: "1Gi",
					Sources: []Source{{
						Arch: "amd64", URL: "https://images.example/disk.img", Checksums: "https://images.example/SUMS",
					}},
				})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	err = ChangeFile(t.Context(), path, func(c *Catalogue) error {
		c.Images = nil
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	after, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Images) != all {
		t.Errorf("%d of %d are there:\n%s", len(after.Images), all, before)
	}
}

// Whoever waits for a lock can be interrupted.
func TestLockIsInterrupted(t *testing.T) {
	// What waited for the lock may yet open its file when the test has ended.
	dir, err := os.MkdirTemp("", "lock") //nolint:usetesting // t.TempDir fails where a file comes while it is removed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for os.RemoveAll(dir) != nil {
			time.Sleep(time.Millisecond)
		}
	})
	path := filepath.Join(dir, "file")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	unlock()
	again, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
