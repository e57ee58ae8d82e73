// Package reflink finds out whether files can share blocks, by which virt-local's volumes are snapshotted and cloned in
// constant time.
package reflink

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Possible reports whether files in dir can share blocks (FICLONE). It makes two small files there, and removes them.
func Possible(dir string) (bool, error) {
	a, err := os.CreateTemp(dir, ".reflink-*")
	if err != nil {
		return false, fmt.Errorf("try reflinks: %w", err)
	}
	defer os.Remove(a.Name())
	defer a.Close()
	b, err := os.CreateTemp(dir, ".reflink-*")
	if err != nil {
		return false, fmt.Errorf("try reflinks: %w", err)
	}
	defer os.Remove(b.Name())
	defer b.Close()
	if _, err := a.Write(bytes.Repeat([]byte{1}, 4096)); err != nil {
		return false, fmt.Errorf("try reflinks: %w", err)
	}
	return unix.IoctlFileClone(int(b.Fd()), int(a.Fd())) == nil, nil
}
