// Package payload carries the programs that must be files of their own: containerd's shim, which runs once
// a pod and would be ten times as large as part of virt-local. The script cmd/virt-local/build compiles it
// into files/ before virt-local itself.
package payload

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

//go:embed all:files
var files embed.FS

// Shim is the name under which containerd looks for its shim.
const Shim = "containerd-shim-runc-v2"

// Multus is the name under which containerd looks for the CNI plugin Multus: virt-local itself, which starts in
// a few hundredths of a second. In a node it is the init's program, wherever that is.
const (
	Multus    = "multus"
	virtLocal = "/proc/1/exe"
)

// ErrIncomplete says that virt-local was compiled without its payload.
var ErrIncomplete = errors.New("this virt-local was built without its container shim: build it with " +
	"cmd/virt-local/build (make build)")

// Complete tells whether the payload is there.
func Complete() error {
	if _, err := fs.Stat(files, "files/"+Shim); err != nil {
		return ErrIncomplete
	}
	return nil
}

// Unpack writes the programs into dir.
func Unpack(dir string) error {
	b, err := files.ReadFile("files/" + Shim)
	if err != nil {
		return ErrIncomplete
	}
	if err := instance.WriteFile(filepath.Join(dir, Shim), b, 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", Shim, err)
	}
	if err := os.Symlink(virtLocal, filepath.Join(dir, Multus)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("unpack %s: %w", Multus, err)
	}
	return nil
}
