package nodestatus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kvmGetAPIVersion is KVM_GET_API_VERSION of linux/kvm.h, and kvmAPIVersion the only answer there is.
const kvmGetAPIVersion, kvmAPIVersion = 0xAE00, 12

// hardware are the modules behind which there is hardware virtualization. Others offer a /dev/kvm too
// (kvm_pvm) that cannot run ordinary guests.
var hardware = []string{"kvm_intel", "kvm_amd"}

// KVM reports whether the node has hardware virtualization: a /dev/kvm that answers and belongs to a module for it; on
// other architectures, a /dev/kvm that answers. The error says what is missing.
func KVM(device, modules, arch string) error {
	if arch == "amd64" {
		found := false
		for _, m := range hardware {
			if _, err := os.Stat(filepath.Join(modules, m)); err == nil {
				found = true
			}
		}
		if !found {
			return errors.New("neither kvm_intel nor kvm_amd is loaded")
		}
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", device, err)
	}
	if version != kvmAPIVersion {
		return fmt.Errorf("%s speaks version %d instead of %d", device, version, kvmAPIVersion)
	}
	return nil
}
