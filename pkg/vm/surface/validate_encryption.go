package surface

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validateEncryption holds KubeVirt's rules for guests whose memory is encrypted, and QEMU's.
func validateEncryption(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	security := domain.LaunchSecurity
	if security == nil {
		return nil
	}
	at := path.Child("launchSecurity")
	if security.SEV == nil {
		if security.SNP != nil || security.TDX != nil {
			return nil // is not supported
		}
		return field.ErrorList{
			field.Required(at, "says not how the memory is to be encrypted; add sev: {} or remove it"),
		}
	}
	var errs field.ErrorList
	forbid := func(is bool, at *field.Path, detail string) {
		if is {
			errs = append(errs, field.Forbidden(at, detail))
		}
	}
	boot := EFI(domain)
	forbid(boot == nil, at.Child("sev"), "SEV requires OVMF (UEFI); set firmware.bootloader.efi: {secureBoot: false}")
	forbid(boot != nil && (boot.SecureBoot == nil || *boot.SecureBoot), at.Child("sev"),
		"SEV does not work along with SecureBoot, which is on unless set; set firmware.bootloader.efi.secureBoot to "+
			"false")
	devices := path.Child("devices")
	for i := range domain.Devices.Interfaces {
		nic := &domain.Devices.Interfaces[i]
		forbid(nic.BootOrder != nil, devices.Child("interfaces").Index(i).Child("bootOrder"),
			fmt.Sprintf("SEV does not work with bootable NICs: %s; remove bootOrder", nic.Name))
	}
	forbid(len(domain.Devices.Filesystems) > 0, devices.Child("filesystems"),
		"cannot be combined with launchSecurity: virtiofsd reads the guest's memory, which is encrypted; use disks")
	old := domain.Devices.UseVirtioTransitional
	forbid(old != nil && *old, devices.Child("useVirtioTransitional"),
		"cannot be combined with launchSecurity: drivers of virtio 0.9 cannot use encrypted memory; remove it")
	policy := security.SEV.Policy
	if policy == nil || policy.EncryptedState == nil || !*policy.EncryptedState {
		return errs
	}
	cpu := domain.CPU
	forbid(cpu != nil && cpu.MaxSockets > max(cpu.Sockets, 1), path.Child("cpu", "maxSockets"),
		"cannot be more than sockets with launchSecurity.sev.policy.encryptedState: the state of all vCPUs is "+
			"encrypted when the guest starts")
	f := domain.Features
	forbid(f != nil && f.SMM != nil && (f.SMM.Enabled == nil || *f.SMM.Enabled), path.Child("features", "smm"),
		"cannot be combined with launchSecurity.sev.policy.encryptedState; remove it")
	return errs
}
