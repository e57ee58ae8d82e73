package surface

import (
	"strings"
	"testing"
)

func TestValidateEncryption(t *testing.T) {
	const uefi = "firmware: {bootloader: {efi: {secureBoot: false}}}, "
	const sev, es = "launchSecurity: {sev: {}}", "launchSecurity: {sev: {policy: {encryptedState: true}}}"
	const at, devices = "spec.domain.launchSecurity", "spec.domain.devices"
	for name, tc := range map[string]struct{ domain, want string }{
		"none":   {"memory: {}", ""},
		"SEV":    {uefi + sev, ""},
		"SEV-ES": {uefi + es, ""},
		"empty": {
			"launchSecurity: {}", at + ": says not how the memory is to be encrypted; add sev: {}",
		},
		"SNP is said elsewhere": {"launchSecurity: {snp: {}}", ""},
		"TDX is said elsewhere": {"launchSecurity: {tdx: {}}", ""},
		"no firmware":           {sev, at + ".sev: SEV requires OVMF (UEFI); set firmware.bootloader.efi"},
		"BIOS":                  {"firmware: {bootloader: {bios: {}}}, " + sev, at + ".sev: SEV requires OVMF (UEFI)"},
		"Secure Boot": {
			"firmware: {bootloader: {efi: {secureBoot: true}}}, " + sev,
			at + ".sev: SEV does not work along with SecureBoot",
		},
		"Secure Boot unsaid": {
			"firmware: {bootloader: {efi: {}}}, " + sev, at + ".sev: SEV does not work along with SecureBoot",
		},
		"boot from the network": {
			uefi + sev + ", devices: {interfaces: [{name: a}, {name: b, bootOrder: 1}]}",
			devices + ".interfaces[1].bootOrder: SEV does not work with bootable NICs: b",
		},
		"file systems": {
			uefi + sev + ", devices: {filesystems: [{name: a, virtiofs: {}}]}",
			devices + ".filesystems: cannot be combined with launchSecurity",
		},
		"virtio 0.9": {
			uefi + sev + ", devices: {useVirtioTransitional: true}",
			devices + ".useVirtioTransitional: cannot be combined with launchSecurity",
		},
		"more sockets":        {uefi + sev + ", cpu: {sockets: 1, maxSockets: 4}", ""},
		"as many sockets, ES": {uefi + es + ", cpu: {sockets: 2, maxSockets: 2}", ""},
		"more sockets, ES": {
			uefi + es + ", cpu: {sockets: 1, maxSockets: 4}",
			"spec.domain.cpu.maxSockets: cannot be more than sockets with launchSecurity.sev.policy.encryptedState",
		},
		"SMM": {uefi + sev + ", features: {smm: {}}", ""},
		"SMM, ES": {
			uefi + es + ", features: {smm: {}}",
			"spec.domain.features.smm: cannot be combined with launchSecurity.sev.policy.encryptedState",
		},
		"SMM off, ES": {uefi + es + ", features: {smm: {enabled: false}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, "domain: {"+tc.domain+"}")
			got := Message(validateEncryption(&vmi.Spec.Domain, specPath.Child("domain")))
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestUnsupportedEncryption(t *testing.T) {
	const at = "spec.domain.launchSecurity."
	for spec, want := range map[string]struct{ field, remedy string }{
		"snp: {}":                {"snp", "it needs firmware without a variable store"},
		"tdx: {}":                {"tdx", "the QEMU of virt-launcher's image"},
		"sev: {attestation: {}}": {"sev.attestation", "nothing hands the guest's measurement out"},
		"sev: {session: eA==}":   {"sev.session", "there is no attestation"},
		"sev: {dhCert: eA==}":    {"sev.dhCert", "there is no attestation"},
	} {
		vmi := instance(t, "domain: {launchSecurity: {"+spec+"}}")
		if got := Message(unsupported(vmi.Spec, instanceTree(), specPath)); !strings.HasPrefix(got,
			at+want.field+": not supported by virtkit") || !strings.Contains(got, want.remedy) {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
