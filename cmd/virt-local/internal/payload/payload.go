// Package payload carries the programs that must be files of their own: containerd's shim, which runs once a pod and
// would be ten times as large as part of virt-local; the CSI driver with its sidecars, whose feature gates clash with
// those of Kubernetes' components; and what of the driver runs once a node. The script cmd/virt-local/build compiles
// them into files/ before virt-local itself.
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

// CSI is the program of the CSI driver, cmd/virt-local-csi, and CSINode what of it each node runs.
const (
	CSI     = "virt-local-csi"
	CSINode = "virt-local-csi-node"
)

// Multus is the name under which containerd looks for the CNI plugin Multus: virt-local itself, which starts in
// a few hundredths of a second. In a node it is the init's program, wherever that is.
const (
	Multus    = "multus"
	virtLocal = "/proc/1/exe"
)

// ErrIncomplete says that virt-local was compiled without its payload.
var ErrIncomplete = errors.New("this virt-local was built without its container shim or CSI driver: build it with " +
	"cmd/virt-local/build (make build)")

// NoDAD is the name of the CNI plugin by which a pod's IPv6 addresses are usable at once. It is a shell script: it runs
// once a pod, in a few thousandths of a second.
const NoDAD = "virt-local-no-dad"

//go:embed no-dad.sh
var noDAD []byte

// Complete reports whether the payload is there.
func Complete() error {
	for _, name := range []string{Shim, CSI, CSINode} {
		if _, err := fs.Stat(files, "files/"+name); err != nil {
			return ErrIncomplete
		}
	}
	return nil
}

// UnpackCSI writes the CSI driver's programs into dir, for an instance that has it.
func UnpackCSI(dir string) error { return errors.Join(unpack(dir, CSI), unpack(dir, CSINode)) }

func unpack(dir, name string) error {
	b, err := files.ReadFile("files/" + name)
	if err != nil {
		return ErrIncomplete
	}
	if err := instance.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return nil
}

// Unpack writes the programs that every instance has into dir.
func Unpack(dir string) error {
	if err := unpack(dir, Shim); err != nil {
		return err
	}
	if err := instance.WriteFile(filepath.Join(dir, NoDAD), noDAD, 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", NoDAD, err)
	}
	if err := os.Symlink(virtLocal, filepath.Join(dir, Multus)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("unpack %s: %w", Multus, err)
	}
	return nil
}
