package peripherals

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		devices               v1.Devices
		graphics, serial, tpm bool
	}{
		"nothing is said": {v1.Devices{}, true, true, false},
		"yes": {
			v1.Devices{
				AutoattachGraphicsDevice: new(true), AutoattachSerialConsole: new(true),
				TPM: &v1.TPMDevice{Enabled: new(true)},
			},
			true, true, true,
		},
		"no": {
			v1.Devices{
				AutoattachGraphicsDevice: new(false), AutoattachSerialConsole: new(false),
				TPM: &v1.TPMDevice{Enabled: new(false)},
			},
			false, false, false,
		},
		"no screen":  {v1.Devices{AutoattachGraphicsDevice: new(false)}, false, true, false},
		"no console": {v1.Devices{AutoattachSerialConsole: new(false)}, true, false, false},
		"a TPM":      {v1.Devices{TPM: &v1.TPMDevice{}}, true, true, true},
		"a disabled TPM with state": {
			v1.Devices{TPM: &v1.TPMDevice{Enabled: new(false), Persistent: new(true)}}, true, true, false,
		},
	} {
		if got := Graphics(&c.devices); got != c.graphics {
			t.Errorf("%s: a screen: %v", name, got)
		}
		if got := SerialConsole(&c.devices); got != c.serial {
			t.Errorf("%s: a serial console: %v", name, got)
		}
		if got := TPM(&c.devices); got != c.tpm {
			t.Errorf("%s: a TPM: %v", name, got)
		}
	}
}
