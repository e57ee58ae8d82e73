package vmstate

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestNeeded(t *testing.T) {
	on, off := true, false
	for name, test := range map[string]struct {
		tpm      *v1.TPMDevice
		efi      *v1.EFI
		tpmKept  bool
		varsKept bool
	}{
		"nothing":               {},
		"both are for the life": {tpm: &v1.TPMDevice{}, efi: &v1.EFI{}},
		"TPM":                   {tpm: &v1.TPMDevice{Persistent: &on}, tpmKept: true},
		"TPM that is off":       {tpm: &v1.TPMDevice{Enabled: &off, Persistent: &on}},
		"EFI":                   {efi: &v1.EFI{Persistent: &on}, varsKept: true},
		"EFI that says no":      {efi: &v1.EFI{Persistent: &off}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1.VirtualMachineInstanceSpec{}
			spec.Domain.Devices.TPM = test.tpm
			if test.efi != nil {
				spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: test.efi}}
			}
			if got := TPM(spec); got != test.tpmKept {
				t.Errorf("TPM %t", got)
			}
			if got := EFI(spec); got != test.varsKept {
				t.Errorf("EFI %t", got)
			}
			if got := Needed(spec); got != (test.tpmKept || test.varsKept) {
				t.Errorf("needed %t", got)
			}
		})
	}
}
