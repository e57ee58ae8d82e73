package surface

import (
	"fmt"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/version"
)

func TestValidateHardware(t *testing.T) {
	disk := func(text, source string) string {
		return fmt.Sprintf("domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, "+
			"%s}]}}\nvolumes: [{name: root, %s}]", text, source)
	}
	two := func(a, b string) string {
		return fmt.Sprintf("domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, %s}, {name: b, %s}]}}\n"+
			"volumes: [{name: root, containerDisk: {image: x}}, {name: b, emptyDisk: {capacity: 1Gi}}]", a, b)
	}
	domain := func(text string) string {
		return "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}]}, " + text + "}"
	}
	hyperv := func(text string) string { return domain("features: {hyperv: {" + text + "}}") }
	devices := func(text string) string {
		return "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " + text + "}}"
	}
	nic := func(text string) string {
		return devices("interfaces: [{name: default, masquerade: {}, "+text+"}]") +
			"\nnetworks: [{name: default, pod: {}}]"
	}
	nics := func(a, b string) string {
		return devices("interfaces: [{name: default, masquerade: {}, "+a+"}, {name: back, bridge: {}, "+b+"}]") +
			"\nnetworks: [{name: default, pod: {}}, {name: back, multus: {networkName: x}}]"
	}
	const image = "containerDisk: {image: x}"
	const claim = "persistentVolumeClaim: {claimName: c}"
	unsupported := func(field, remedy string) string {
		return field + ": not supported by virtkit " + version.Get().GitVersion + "; see docs/api-surface.md (" + remedy
	}
	const disk0 = "spec.domain.devices.disks[0]"
	const nic0 = "spec.domain.devices.interfaces[0]"

	for name, tc := range map[string]struct{ spec, want string }{
		"io threads": {domain("ioThreadsPolicy: auto"), ``},
		"io threads policy": {
			domain("ioThreadsPolicy: many"),
			`spec.domain.ioThreadsPolicy: "many" is not supported; use shared, auto or supplementalPool`,
		},
		"pool without threads": {
			domain("ioThreadsPolicy: supplementalPool"),
			`spec.domain.ioThreads.supplementalPoolThreadCount: is not set`,
		},
		"pool of no threads": {
			domain("ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 0}"),
			`spec.domain.ioThreads.supplementalPoolThreadCount: is not set`,
		},
		"pool": {domain("ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 4}"), ``},
		"huge pool": {
			domain("ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 4000000000}"),
			`spec.domain.ioThreads.supplementalPoolThreadCount: 4000000000 are too many threads; the most is 1024`,
		},
		"threads without pool": {
			domain("ioThreadsPolicy: shared, ioThreads: {supplementalPoolThreadCount: 4}"),
			`spec.domain.ioThreads.supplementalPoolThreadCount: has no meaning but with`,
		},
		"io thread of a virtio disk": {disk("disk: {bus: virtio}, dedicatedIOThread: true", image), ``},
		"io thread of a sata disk": {
			disk("disk: {bus: sata}, dedicatedIOThread: true", image),
			disk0 + `.dedicatedIOThread: is for virtio disks, and this one is on sata; change its bus or remove it`,
		},
		"io thread of a hotplugged one": {
			disk("disk: {bus: virtio}, dedicatedIOThread: true",
				"persistentVolumeClaim: {claimName: c, hotpluggable: true}"),
			``,
		},

		"lun": {disk("lun: {}", claim), ``},
		"lun of an image": {
			disk("lun: {}", image),
			disk0 +
				`.lun: hands SCSI commands to the device of a claim with volumeMode Block, and the volume is none; use disk: {bus: scsi}`,
		},
		"lun on virtio": {disk("lun: {bus: virtio}", claim), disk0 + `.lun.bus: "virtio" is not supported; use scsi`},
		"reservation": {
			disk("lun: {reservation: true}", claim),
			unsupported(disk0+".lun.reservation", "persistent reservations need"),
		},
		"changed blocks": {
			disk("changedBlockTracking: true", image), unsupported(disk0+".changedBlockTracking", "nothing reads"),
		},
		"block sizes": {disk("disk: {bus: virtio}, blockSize: {matchVolume: {}}", image), ``},
		"two block sizes": {
			disk("blockSize: {matchVolume: {}, custom: {logical: 512, physical: 512}}", image),
			disk0 + `.blockSize: has both custom and matchVolume; keep one`,
		},
		"block size or not": {
			disk("blockSize: {matchVolume: {enabled: false}, custom: {logical: 512, physical: 512}}", image), ``,
		},

		"disk address": {disk("disk: {bus: virtio, pciAddress: '0000:03:00.0'}", image), ``},
		"disk address of what": {
			disk("disk: {bus: virtio, pciAddress: '81:01.10'}", image),
			disk0 + `.disk.pciAddress: "81:01.10" is not a PCI address such as 0000:03:00.0`,
		},
		"disk address on sata": {
			disk("disk: {bus: sata, pciAddress: '0000:03:00.0'}", image),
			disk0 + `.disk.pciAddress: is for virtio disks, and this one is on sata`,
		},
		"disk address of the host": {
			disk("disk: {bus: virtio, pciAddress: '0000:00:00.0'}", image),
			disk0 + `.disk.pciAddress: is the host bridge's`,
		},
		"disk address taken": {
			two("disk: {bus: virtio, pciAddress: '0000:0a:00.0'}", "disk: {bus: virtio, pciAddress: '0000:0A:00.0'}"),
			`spec.domain.devices.disks[1].disk.pciAddress: 0000:0a:00.0 is the address of "root", too`,
		},
		"interface address":         {nic("pciAddress: '0000:03:00.0'"), ``},
		"interface address of what": {nic("pciAddress: x"), nic0 + `.pciAddress: "x" is not a PCI address`},
		"interface address taken": {
			nics("pciAddress: '0000:03:00.0'", "pciAddress: '0000:03:00.0'"),
			`spec.domain.devices.interfaces[1].pciAddress: 0000:03:00.0 is the address of "default", too`,
		},
		"acpi index":          {nic("acpiIndex: 16383"), ``},
		"acpi index too high": {nic("acpiIndex: 16384"), nic0 + `.acpiIndex: 16384 is not from 1 to 16383`},
		"acpi index negative": {nic("acpiIndex: -1"), nic0 + `.acpiIndex: -1 is not from`},
		"acpi index twice": {
			nics("acpiIndex: 7", "acpiIndex: 7"),
			`spec.domain.devices.interfaces[1].acpiIndex: 7 is the index of interface "default", too`,
		},
		"tag": {disk("disk: {bus: virtio}, tag: a", "cloudInitConfigDrive: {userData: x}"), ``},
		"tag without drive": {
			disk("disk: {bus: virtio}, tag: a", "cloudInitNoCloud: {userData: x}"),
			disk0 + `.tag: reaches the guest in the meta data of a cloudInitConfigDrive volume, and there is none`,
		},
		"interface tag": {nic("tag: a"), nic0 + `.tag: reaches the guest`},
		"tag of what":   {nic(`tag: "\u00e4"`), nic0 + `.tag: must be at most 256 printable`},

		"absent": {nics("state: up", "state: absent"), ``},
		"absent pod network": {
			nic("state: absent"), nic0 + `.state: "absent" is for networks besides the pod's; use down`,
		},
		"state": {nic("state: gone"), nic0 + `.state: "gone" is not supported; use up, down or absent`},
		"dhcp": {
			nic("dhcpOptions: {bootFileName: a, tftpServerName: b, ntpServers: [10.0.0.1], " +
				"privateOptions: [{option: 224, value: x}, {option: 254, value: z}]}"),
			``,
		},
		"dhcp boot file": {
			nic("dhcpOptions: {bootFileName: " + strings.Repeat("x", 256) + "}"),
			nic0 + `.dhcpOptions.bootFileName: must be at most 255 printable`,
		},
		"dhcp tftp": {
			nic(`dhcpOptions: {tftpServerName: "a\nb"}`),
			nic0 + `.dhcpOptions.tftpServerName: must be at most 255 printable`,
		},
		"dhcp ntp": {
			nic("dhcpOptions: {ntpServers: [10.0.0.1, 'fd00::1']}"),
			nic0 + `.dhcpOptions.ntpServers[1]: "fd00::1" is not an IPv4 address`,
		},
		"dhcp many ntp": {
			nic("dhcpOptions: {ntpServers: [" + strings.Repeat("10.0.0.1, ", 64) + "]}"),
			nic0 + `.dhcpOptions.ntpServers: has 64 entries; the most is 63`,
		},
		"dhcp option below": {
			nic("dhcpOptions: {privateOptions: [{option: 223, value: x}]}"),
			nic0 + `.dhcpOptions.privateOptions[0].option: 223 is not from 224 to 254`,
		},
		"dhcp option above": {
			nic("dhcpOptions: {privateOptions: [{option: 255, value: x}]}"),
			nic0 + `.dhcpOptions.privateOptions[0].option: 255 is not from 224 to 254`,
		},
		"dhcp option twice": {
			nic("dhcpOptions: {privateOptions: [{option: 240, value: x}, {option: 240, value: z}]}"),
			nic0 + `.dhcpOptions.privateOptions[1].option: 240 is there twice`,
		},
		"dhcp option without": {
			nic("dhcpOptions: {privateOptions: [{option: 240, value: ''}]}"),
			nic0 + `.dhcpOptions.privateOptions[0].value: is not set`,
		},
		"slirp": {
			devices("interfaces: [{name: default, slirp: {}}]") + "\nnetworks: [{name: default, pod: {}}]",
			unsupported(nic0+".slirp", "use masquerade: {})"),
		},
		"macvtap": {
			devices("interfaces: [{name: default, macvtap: {}}]") + "\nnetworks: [{name: default, pod: {}}]",
			unsupported(nic0+".macvtap", "use bridge"),
		},
		"passt": {
			devices("interfaces: [{name: default, passtBinding: {}}]") + "\nnetworks: [{name: default, pod: {}}]",
			unsupported(nic0+".passtBinding", "use masquerade"),
		},
		// see Allowed
		"plugin": {
			devices("interfaces: [{name: default, binding: {name: x}}]") + "\nnetworks: [{name: default, pod: {}}]", ``,
		},
		"sriov": {
			devices("interfaces: [{name: default, sriov: {}}]") + "\nnetworks: [{name: default, pod: {}}]",
			nic0 + ".sriov: is for networks of Multus'",
		},
		"launchSecurity": {
			domain("firmware: {bootloader: {efi: {secureBoot: false}}}, launchSecurity: {sev: {}}"), ``,
		},
		"sound":              {devices("sound: {name: a}"), ``},
		"sound without name": {devices("sound: {name: ''}"), `spec.domain.devices.sound.name: is not set`},
		"sound name": {
			devices("sound: {name: 'a b'}"), `spec.domain.devices.sound.name: "a b" is not a device name`,
		},
		"sound model": {
			devices("sound: {name: a, model: sb16}"),
			`spec.domain.devices.sound.model: "sb16" is not supported; use ich9 or ac97`,
		},
		"hyperv": {
			hyperv("relaxed: {}, vapic: {}, spinlocks: {spinlocks: 8191}, synictimer: {direct: {}}, " +
				"tlbflush: {}, ipi: {}, evmcs: {}"),
			``,
		},
		"hyperv both": {
			domain("features: {hypervPassthrough: {}, hyperv: {relaxed: {}}}"),
			`spec.domain.features.hypervPassthrough: shows the guest all of Hyper-V`,
		},
		"hyperv one of both": {domain("features: {hypervPassthrough: {enabled: false}, hyperv: {relaxed: {}}}"), ``},
		"synictimer": {
			hyperv("synictimer: {}, synic: {enabled: false}"),
			`spec.domain.features.hyperv.synic.enabled: cannot be off while synictimer is on`,
		},
		"synic": {
			hyperv("synic: {}, vpindex: {enabled: false}"),
			`spec.domain.features.hyperv.vpindex.enabled: cannot be off while synic is on`,
		},
		"tlbflush": {
			hyperv("tlbflush: {}, vpindex: {enabled: false}"),
			`spec.domain.features.hyperv.vpindex.enabled: cannot be off while tlbflush is on`,
		},
		"ipi": {
			hyperv("ipi: {}, vpindex: {enabled: false}"),
			`spec.domain.features.hyperv.vpindex.enabled: cannot be off while ipi is on`,
		},
		"evmcs": {
			hyperv("evmcs: {}, vapic: {enabled: false}"),
			`spec.domain.features.hyperv.vapic.enabled: cannot be off while evmcs is on`,
		},
		"evmcs without vmx": {
			domain("cpu: {features: [{name: vmx, policy: disable}]}, features: {hyperv: {evmcs: {}}}"),
			`spec.domain.cpu.features[0].policy: cannot keep vmx from the guest`,
		},
		"spinlocks": {
			hyperv("spinlocks: {spinlocks: 4095}"),
			`spec.domain.features.hyperv.spinlocks.spinlocks: 4095 is too few; the least is 4096`,
		},
		"vendor": {hyperv("vendorid: {vendorid: Genuine}"), ``},
		"vendor too long": {
			hyperv("vendorid: {vendorid: GenuineVendor}"),
			`spec.domain.features.hyperv.vendorid.vendorid: must be at most 12`,
		},
		"vendor without": {hyperv("vendorid: {}"), `spec.domain.features.hyperv.vendorid.vendorid: is not set`},
		"vendor off":     {hyperv("vendorid: {enabled: false}"), ``},
		"acpi table": {
			domain("firmware: {acpi: {slicNameRef: s, msdmNameRef: s}}") +
				"\nvolumes: [{name: root, containerDisk: {image: x}}, {name: s, secret: {secretName: s}}]",
			``,
		},
		"acpi table of nothing": {
			domain("firmware: {acpi: {slicNameRef: s}}"),
			`spec.domain.firmware.acpi.slicNameRef: no volume is named "s"; add it to volumes, as a secret`,
		},
		"acpi table of a disk": {
			domain("firmware: {acpi: {msdmNameRef: root}}"),
			`spec.domain.firmware.acpi.msdmNameRef: volume "root" is no Secret`,
		},
		"queues": {devices("blockMultiQueue: true, networkInterfaceMultiqueue: true, useVirtioTransitional: true"), ``},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) || strings.Contains(got, "; spec.") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestDefaultHyperv: what a feature rests on comes with it.
func TestDefaultHyperv(t *testing.T) {
	vmi := instance(t,
		"domain: {memory: {guest: 1Gi}, features: {hyperv: {synictimer: {}, evmcs: {}}}, "+
			"devices: {disks: [{name: root, disk: {bus: virtio}}]}}")
	DefaultVirtualMachineInstance(vmi, testDefaults)
	h := vmi.Spec.Domain.Features.Hyperv
	if !switchedOn(h.SyNIC) || !switchedOn(h.VPIndex) || !switchedOn(h.VAPIC) || h.IPI != nil {
		t.Errorf("%+v", h)
	}
	if f := vmi.Spec.Domain.CPU.Features; len(f) != 1 || f[0].Name != "vmx" || f[0].Policy != "require" {
		t.Errorf("CPU features %+v", f)
	}
}
