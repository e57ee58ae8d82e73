// Package vmstate defines the state of a VirtualMachineInstance that outlives it beside its disks: the
// state of a persistent TPM and the variables of a persistent EFI. It is kept on a PersistentVolumeClaim
// that virt-controller makes and the launcher writes. The package is pure; every component asks it.
//
//	<claim>/nvram/<vmi>_VARS.fd                the EFI variables; QEMU's pflash writes them. It keeps the name of a VM
//	                                           that is renamed (package identity)
//	<claim>/swtpm/<firmware uuid>/tpm2/…       the TPM's state, a copy that the launcher keeps current
//
// The layout and the claim's name and label are KubeVirt's, so that a VM brings its state along.
//
// A claim that only one node can use does not move with the guest: the target of a migration gets one of its own
// (migration.go).
package vmstate

import (
	"fmt"
	"path"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

const (
	// Prefix begins the claim's name, persistent-state-for-<vmi>-xxxxx, and is the label that has the VMI's name.
	Prefix = "persistent-state-for"
	// Size is the size that the claim asks for.
	Size = "10Mi"
)

// TakenError is that the claim for a VMI's state cannot be made, since a claim of that name exists.
func TakenError(claim string) error {
	return fmt.Errorf("PersistentVolumeClaim %s exists already and is not for this VMI's state: it is being deleted, "+
		"or lacks the label %s", claim, Prefix)
}

// Needed reports whether a VMI has state to keep.
func Needed(spec *v1.VirtualMachineInstanceSpec) bool { return TPM(spec) || EFI(spec) }

// TPM reports whether the TPM's state is kept.
func TPM(spec *v1.VirtualMachineInstanceSpec) bool {
	tpm := spec.Domain.Devices.TPM
	return peripherals.TPM(&spec.Domain.Devices) && tpm.Persistent != nil && *tpm.Persistent
}

// EFI reports whether the EFI variables are kept.
func EFI(spec *v1.VirtualMachineInstanceSpec) bool {
	firmware := spec.Domain.Firmware
	if firmware == nil || firmware.Bootloader == nil || firmware.Bootloader.EFI == nil {
		return false
	}
	persistent := firmware.Bootloader.EFI.Persistent
	return persistent != nil && *persistent
}

// NVRAM returns the file of the EFI variables, below the claim's directory.
func NVRAM(dir, vmi string) string {
	return path.Join(dir, "nvram", names.Shorten(vmi, maxName)+"_VARS.fd")
}

// maxName is the greatest length that a VMI's name may have in a file's, bytes.
const maxName = 240

// TPMDir returns the directory of the TPM's state, below the claim's directory. libvirt has the same below its own.
func TPMDir(dir, firmwareUUID string) string { return path.Join(dir, "swtpm", firmwareUUID, "tpm2") }

// TPMDirs returns the pattern (path.Match) of TPMDir for all firmware UUIDs. The claim of a clone has the directory of
// the VM that it was cloned from, whose UUID is another.
func TPMDirs(dir string) string { return TPMDir(dir, "*") }
