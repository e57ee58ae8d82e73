package surface

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Each case sets sections of the basic spec; want is the start of the only message, or nothing.
func TestValidateInstance(t *testing.T) {
	disks := func(disks, volumes string) string {
		return fmt.Sprintf("domain: {memory: {guest: 1Gi}, devices: {disks: [%s]}}\nvolumes: [%s]", disks, volumes)
	}
	volume := func(source string) string {
		return disks("{name: root, disk: {bus: virtio}}", "{name: root, "+source+"}")
	}
	cloudInit := func(source string) string { return volume("cloudInitNoCloud: {" + source + "}") }
	drive := func(source string) string { return volume("cloudInitConfigDrive: {" + source + "}") }
	domain := func(text string) string {
		return "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}]}, " + text + "}"
	}
	devices := func(text string) string {
		return "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " + text + "}}"
	}
	nic := func(text string) string {
		return devices("interfaces: [{name: default, "+text+"}]") + "\nnetworks: [{name: default, pod: {}}]"
	}
	memory := func(text string) string {
		return "domain: {devices: {disks: [{name: root, disk: {}}]}, " + text + "}"
	}
	const image = "containerDisk: {image: x}"
	const root = "{name: root, " + image + "}"
	long := strings.Repeat("x", 64)

	for name, tc := range map[string]struct{ spec, want string }{
		"basic": {``, ``},

		"two disks of one name": {
			disks("{name: root}, {name: root}", root),
			`spec.domain.devices.disks[1].name: "root" is the name of another disk too`,
		},
		"disk without volume": {
			disks("{name: root}, {name: data}", root),
			`spec.domain.devices.disks[1].name: no volume is named "data"; add it to volumes or remove the disk`,
		},
		"disk without name": {disks("{name: root}, {disk: {}}", root), `spec.domain.devices.disks[1].name: is not set`},
		"disk name": {
			disks("{name: root}, {name: A_b}", root+", {name: A_b, emptyDisk: {capacity: 1}}"),
			`spec.volumes[1].name: "A_b" is not a name`,
		},
		"long disk name": {
			disks("{name: root}, {name: "+long+"}", root+", {name: "+long+", emptyDisk: {capacity: 1}}"),
			`spec.volumes[1].name: has 64 characters`,
		},
		"two devices": {
			disks("{name: root, disk: {}, cdrom: {}}", root), `spec.domain.devices.disks[0]: is more than one`,
		},
		"disk bus": {
			disks("{name: root, disk: {bus: ide}}", root),
			`spec.domain.devices.disks[0].disk.bus: "ide" is not supported; use virtio, sata, scsi or usb`,
		},
		"cdrom bus": {
			disks("{name: root, cdrom: {bus: virtio}}", root),
			`spec.domain.devices.disks[0].cdrom.bus: "virtio" is not supported; use sata, scsi or usb`,
		},
		"cdrom writable": {
			disks("{name: root, cdrom: {readonly: false}}", root),
			`spec.domain.devices.disks[0].cdrom.readonly: "false" is not supported; use true`,
		},
		"sata read-only": {
			disks("{name: root, disk: {bus: sata, readonly: true}}", root),
			`spec.domain.devices.disks[0].disk.bus: a sata disk cannot be read-only`,
		},
		"read-only claim": {
			disks("{name: root, disk: {bus: sata}}",
				"{name: root, persistentVolumeClaim: {claimName: c, readOnly: true}}"),
			`spec.domain.devices.disks[0].disk.bus: a sata`,
		},
		"serial": {disks("{name: root, serial: 'a b'}", root), `spec.domain.devices.disks[0].serial: must be`},
		"cache": {
			disks("{name: root, cache: fast}", root), `spec.domain.devices.disks[0].cache: "fast" is not supported`,
		},
		"io with cache": {
			disks("{name: root, cache: writeback, io: native}", root),
			`spec.domain.devices.disks[0].io: native needs cache: none`,
		},
		"block size": {
			disks("{name: root, blockSize: {custom: {logical: 500, physical: 4096}}}", root),
			`spec.domain.devices.disks[0].blockSize.custom.logical: 500 is not a power`,
		},
		"block sizes": {
			disks("{name: root, blockSize: {custom: {logical: 4096, physical: 512}}}", root),
			`spec.domain.devices.disks[0].blockSize.custom.logical: must not be more`,
		},
		"boot order zero": {
			disks("{name: root, bootOrder: 0}", root), `spec.domain.devices.disks[0].bootOrder: must be 1 or more`,
		},
		"boot order twice": {
			disks("{name: root, bootOrder: 1}, {name: b, bootOrder: 1}", root+", {name: b, emptyDisk: {capacity: 1}}"),
			`spec.domain.devices.disks[1].bootOrder: 1 is the boot order of "root" too`,
		},
		"two volumes of one name": {
			disks("{name: root}", root+", "+root), `spec.volumes[1].name: "root" is the name of another volume too`,
		},
		"no source":   {disks("{name: root}", "{name: root}"), `spec.volumes[0]: has no source`},
		"two sources": {volume(image + ", emptyDisk: {capacity: 1Gi}"), `spec.volumes[0]: has more than one source`},
		"no image":    {volume("containerDisk: {image: ''}"), `spec.volumes[0].containerDisk.image: is not set`},
		"image": {
			volume("containerDisk: {image: 'a b'}"),
			`spec.volumes[0].containerDisk.image: "a b" is not an image reference`,
		},
		"image path": {
			volume("containerDisk: {image: x, path: /../etc/shadow}"),
			`spec.volumes[0].containerDisk.path: "/../etc/shadow" is not an absolute path`,
		},
		"pull policy": {
			volume("containerDisk: {image: x, imagePullPolicy: Sometimes}"),
			`spec.volumes[0].containerDisk.imagePullPolicy: "Sometimes" is not supported; use Always, IfNotPresent or Never`,
		},
		"pull secret": {
			volume("containerDisk: {image: x, imagePullSecret: A}"),
			`spec.volumes[0].containerDisk.imagePullSecret: "A" is not the name`,
		},
		"no claim": {
			volume("persistentVolumeClaim: {claimName: ''}"),
			`spec.volumes[0].persistentVolumeClaim.claimName: is not set`,
		},
		"no DataVolume": {volume("dataVolume: {name: ''}"), `spec.volumes[0].dataVolume.name: is not set`},
		"a claim and DataVolume": {
			disks("{name: root}, {name: b}",
				"{name: root, persistentVolumeClaim: {claimName: c}}, {name: b, dataVolume: {name: c}}"),
			`spec.volumes[1].dataVolume.name: claim "c" is the disk "root" already`,
		},
		"one claim twice": {
			disks("{name: root}, {name: b}",
				"{name: root, persistentVolumeClaim: {claimName: c}}, {name: b, "+
					"persistentVolumeClaim: {claimName: c}}"),
			`spec.volumes[1].persistentVolumeClaim.claimName: claim "c" is the disk "root" already`,
		},
		"empty disk of nothing": {
			volume("emptyDisk: {capacity: 0}"), `spec.volumes[0].emptyDisk.capacity: must be more than zero`,
		},
		"cloud-init 2048": {cloudInit("userData: " + strings.Repeat("x", 2048)), ``},
		"cloud-init 2049": {
			cloudInit("userData: " + strings.Repeat("x", 2049)),
			`spec.volumes[0].cloudInitNoCloud.userData: has 2049 bytes; 2048 is the most in a spec, so put it into a Secret and name it in secretRef`,
		},
		"cloud-init base64 2049": {
			cloudInit("userDataBase64: " + strings.Repeat("AAAA", 683)),
			`spec.volumes[0].cloudInitNoCloud.userDataBase64: has 2049 bytes`,
		},
		"cloud-init base64 2048": {cloudInit("userDataBase64: " + strings.Repeat("AAAA", 682) + "AAA="), ``},
		"cloud-init bad base64": {
			cloudInit("userDataBase64: '%%%'"), `spec.volumes[0].cloudInitNoCloud.userDataBase64: is not base64`,
		},
		"cloud-init two ways": {
			cloudInit("userData: x, secretRef: {name: s}"),
			`spec.volumes[0].cloudInitNoCloud.userData: more than one of userData, userDataBase64 and secretRef is set`,
		},
		"cloud-init nothing": {cloudInit(""), `spec.volumes[0].cloudInitNoCloud: has no data`},
		"cloud-init secret": {
			cloudInit("secretRef: {name: A}"), `spec.volumes[0].cloudInitNoCloud.secretRef.name: "A" is not`,
		},
		"cloud-init network 2049": {
			cloudInit("userData: x, networkData: " + strings.Repeat("x", 2049)),
			`spec.volumes[0].cloudInitNoCloud.networkData: has 2049 bytes; 2048 is the most in a spec, so put it into a Secret and name it in networkDataSecretRef`,
		},
		"config drive": {drive("userData: x"), ``},
		"config drive 2049": {
			drive("userData: " + strings.Repeat("x", 2049)),
			`spec.volumes[0].cloudInitConfigDrive.userData: has 2049 bytes; 2048 is the most in a spec, so put it into a Secret and name it in secretRef`,
		},
		"config drive nothing": {drive(""), `spec.volumes[0].cloudInitConfigDrive: has no data`},
		"config drive secret": {
			drive("networkDataSecretRef: {name: A}"),
			`spec.volumes[0].cloudInitConfigDrive.networkDataSecretRef.name: "A" is not`,
		},
		"cloud-init of both": {
			disks("{name: root}, {name: b}",
				"{name: root, cloudInitNoCloud: {userData: x}}, {name: b, cloudInitConfigDrive: {userData: x}}"),
			`spec.volumes[1].cloudInitConfigDrive: there is another cloud-init volume`,
		},
		"cloud-init twice": {
			disks("{name: root}, {name: b}",
				"{name: root, cloudInitNoCloud: {userData: x}}, {name: b, cloudInitNoCloud: {userData: x}}"),
			`spec.volumes[1].cloudInitNoCloud: there is another`,
		},

		"no memory":              {memory("memory: null"), `spec.domain.memory.guest: is not set`},
		"memory 0":               {memory("memory: {guest: 0}"), `spec.domain.memory.guest: 0 is no memory`},
		"memory negative":        {memory("memory: {guest: -1Gi}"), `spec.domain.memory.guest: -1Gi is no memory`},
		"memory without a guest": {memory("memory: {guest: 1Mi}"), ``},
		"memory beyond reason":   {memory("memory: {guest: 2Ei}"), `spec.domain.memory.guest: 2Ei is more`},
		"memory over limit": {
			memory("memory: {guest: 2Gi}, resources: {limits: {memory: 1Gi}}"),
			`spec.domain.memory.guest: 2Gi is more than resources.limits.memory (1Gi)`,
		},
		"request over limit": {
			memory("memory: {guest: 1Gi}, resources: {requests: {memory: 3Gi}, limits: {memory: 2Gi}}"),
			`spec.domain.resources.requests.memory: 3Gi is more than the limit of 2Gi`,
		},
		"request negative": {
			domain("resources: {requests: {cpu: -1}}"), `spec.domain.resources.requests.cpu: -1 must not be negative`,
		},

		"more CPUs than the topology": {
			domain("cpu: {cores: 2}, resources: {requests: {cpu: 3}}"),
			`spec.domain.resources.requests.cpu: 3 asks for more CPUs than the guest has: 1 sockets × 2 cores × 1 threads = 2`,
		},
		"limit above the topology": {domain("cpu: {cores: 1}, resources: {requests: {cpu: 1}, limits: {cpu: 2}}"), ``},
		"only a limit above it": {
			domain("cpu: {cores: 1}, resources: {limits: {cpu: 2}}"),
			`spec.domain.resources.limits.cpu: 2 asks for more CPUs`,
		},
		"CPUs from the request": {domain("resources: {requests: {cpu: 3}}"), ``},
		"too many CPUs": {
			domain("cpu: {cores: 2048, sockets: 1024}"),
			`spec.domain.cpu: 1024 sockets × 2048 cores × 1 threads are too many vCPUs; the most is 1048576`,
		},
		"CPUs that overflow": {
			domain("cpu: {cores: 4294967295, sockets: 4294967295, threads: 4294967295}"),
			`spec.domain.cpu: 4294967295 sockets`,
		},
		"CPU model": {domain("cpu: {model: 'a b'}"), `spec.domain.cpu.model: "a b" is not a CPU model`},
		"CPU feature policy": {
			domain("cpu: {features: [{name: x, policy: maybe}]}"),
			`spec.domain.cpu.features[0].policy: "maybe" is not supported; use force`,
		},
		"CPU feature twice": {
			domain("cpu: {features: [{name: x}, {name: x}]}"),
			`spec.domain.cpu.features[1].name: "x" is the name of another CPU feature too`,
		},
		"CPU feature without name": {domain("cpu: {features: [{}]}"), `spec.domain.cpu.features[0].name: is not set`},

		"machine type":    {domain("machine: {type: pc}"), `spec.domain.machine.type: "pc" is not supported; use q35`},
		"machine version": {domain("machine: {type: pc-q35-9.2}"), ``},
		"UUID":            {domain("firmware: {uuid: x}"), `spec.domain.firmware.uuid: "x" is not a UUID`},
		"firmware serial": {domain("firmware: {serial: \"a\\nb\"}"), `spec.domain.firmware.serial: must be at most`},
		"two firmwares": {
			domain("firmware: {bootloader: {bios: {}, efi: {}}}"), `spec.domain.firmware.bootloader: has both`,
		},
		"secure boot, no SMM": {
			domain("firmware: {bootloader: {efi: {}}}, features: {smm: {enabled: false}}"),
			`spec.domain.features.smm.enabled: cannot be off with Secure Boot`,
		},
		"no secure boot": {
			domain("firmware: {bootloader: {efi: {secureBoot: false}}}, features: {smm: {enabled: false}}"), ``,
		},
		"time zone": {domain("clock: {timezone: 'a b'}"), `spec.domain.clock.timezone: "a b" is not a time zone`},
		"two clocks": {
			domain("clock: {timezone: Europe/Vienna, utc: {}}"),
			`spec.domain.clock.timezone: cannot be set together with utc`,
		},
		"chassis": {domain("chassis: {sku: \"\\x01\"}"), `spec.domain.chassis.sku: must be`},
		"timer policy": {
			domain("clock: {timer: {pit: {tickPolicy: merge}}}"),
			`spec.domain.clock.timer.pit.tickPolicy: "merge" is not supported; use delay, catchup or discard`,
		},

		"input twice": {
			devices("inputs: [{name: a}, {name: a}]"),
			`spec.domain.devices.inputs[1].name: "a" is the name of another input too`,
		},
		"input type": {
			devices("inputs: [{name: a, type: mouse}]"), `spec.domain.devices.inputs[0].type: "mouse" is not supported`,
		},
		"input name":         {devices("inputs: [{name: 'a b'}]"), `spec.domain.devices.inputs[0].name: "a b" is not`},
		"input without name": {devices("inputs: [{type: tablet}]"), `spec.domain.devices.inputs[0].name: is not set`},
		"watchdog":           {devices("watchdog: {name: w}"), `spec.domain.devices.watchdog.i6300esb: is not set`},
		"watchdog name": {
			devices("watchdog: {name: '', i6300esb: {}}"), `spec.domain.devices.watchdog.name: "" is not`,
		},
		"video without card": {
			devices("autoattachGraphicsDevice: false, video: {type: vga}"), `spec.domain.devices.video: cannot be set`,
		},

		"interface without network": {
			devices("interfaces: [{name: a}]"), `spec.domain.devices.interfaces[0].name: no network is named "a"`,
		},
		"network without interface": {
			`networks: [{name: a, pod: {}}]`, `spec.networks[0].name: no interface is named "a"`,
		},
		"two pod networks": {
			devices("interfaces: [{name: a}, {name: b}]") + "\nnetworks: [{name: a, pod: {}}, {name: b, pod: {}}]",
			`spec.networks[1].pod: network "a" is the pod network already`,
		},
		"network of no kind": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a}]",
			`spec.networks[0]: says not which network it is`,
		},
		"network of two kinds": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, pod: {}, multus: {networkName: x}}]",
			`spec.networks[0]: has both pod and multus`,
		},
		"several networks": {
			devices("interfaces: [{name: a}, {name: b, bridge: {}}, {name: c}]") +
				"\nnetworks: [{name: a, pod: {}}, {name: b, multus: {networkName: ns/x.y}}, {name: c, " +
				"multus: {networkName: x}}]",
			``,
		},
		"network without name": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, multus: {networkName: ''}}]",
			`spec.networks[0].multus.networkName: is not set`,
		},
		"network name": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, multus: {networkName: a/b/c}}]",
			`spec.networks[0].multus.networkName: "a/b/c" is not NAME or NAMESPACE/NAME`,
		},
		"two default networks": {
			devices("interfaces: [{name: a}, {name: b}]") +
				"\nnetworks: [{name: a, pod: {}}, {name: b, multus: {networkName: x, default: true}}]",
			`spec.networks[1].multus.default: network "a" is the pod network already`,
		},
		"masquerade elsewhere": {
			devices("interfaces: [{name: a, masquerade: {}}]") + "\nnetworks: [{name: a, multus: {networkName: x}}]",
			`spec.domain.devices.interfaces[0].masquerade: is for the pod network`,
		},
		"two bindings": {nic("masquerade: {}, bridge: {}"), `spec.domain.devices.interfaces[0]: has both`},
		"NIC model":    {nic("model: fast"), `spec.domain.devices.interfaces[0].model: "fast" is not supported`},
		"MAC": {
			nic("macAddress: 'xx'"), `spec.domain.devices.interfaces[0].macAddress: "xx" is not an Ethernet address`,
		},
		"MAC of many": {
			nic("macAddress: '01:00:5e:00:00:01'"),
			`spec.domain.devices.interfaces[0].macAddress: "01:00:5e:00:00:01" is not the address of one interface`,
		},
		"MAC good": {nic("macAddress: '02-00-00-00-00-01'"), ``},
		"port":     {nic("ports: [{port: 0}]"), `spec.domain.devices.interfaces[0].ports[0].port: 0 is not a port`},
		"port twice": {
			nic("ports: [{port: 80}, {port: 80}]"),
			`spec.domain.devices.interfaces[0].ports[1].port: TCP 80 is listed twice`,
		},
		"port by two protocols": {nic("ports: [{port: 80}, {port: 80, protocol: UDP}]"), ``},
		"port protocol": {
			nic("ports: [{port: 80, protocol: SCTP}]"),
			`spec.domain.devices.interfaces[0].ports[0].protocol: "SCTP" is not supported; use TCP or UDP`,
		},
		"port name": {
			nic("ports: [{port: 80, name: UPPER}]"),
			`spec.domain.devices.interfaces[0].ports[0].name: "UPPER" is not a port name`,
		},
		"port name twice": {
			nic("ports: [{port: 80, name: a}, {port: 81, name: a}]"),
			`spec.domain.devices.interfaces[0].ports[1].name: "a" is the name of another port too`,
		},
		"ports of a bridge": {
			nic("bridge: {}, ports: [{port: 80}]"), ``,
		},
		"wrong port of a bridge": {
			nic("bridge: {}, ports: [{port: 0}]"), `spec.domain.devices.interfaces[0].ports[0].port: 0 is not a port`,
		},
		"port name of two interfaces": {
			devices("interfaces: [{name: a, ports: [{port: 80, name: web}]}, {name: b, bridge: {}, "+
				"ports: [{port: 80, name: web}]}]") +
				"\nnetworks: [{name: a, pod: {}}, {name: b, multus: {networkName: x}}]",
			`spec.domain.devices.interfaces[1].ports[0].name: "web" is the name of another port too`,
		},
		"guest network": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, pod: {vmNetworkCIDR: 10.0.0.0/31}}]",
			`spec.networks[0].pod.vmNetworkCIDR: "10.0.0.0/31" is not an IPv4 network`,
		},
		"guest network of a bridge": {
			devices("interfaces: [{name: a, bridge: {}}]") +
				"\nnetworks: [{name: a, pod: {vmNetworkCIDR: 10.0.0.0/24, vmIPv6NetworkCIDR: 'fd20::/120'}}]", ``,
		},
		"guest network of IPv6": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, pod: {vmIPv6NetworkCIDR: 'fd10::/127'}}]",
			`spec.networks[0].pod.vmIPv6NetworkCIDR: "fd10::/127" is not an IPv6 network`,
		},
		"guest network of IPv6 that is IPv4": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, pod: {vmIPv6NetworkCIDR: 10.0.0.0/24}}]",
			`spec.networks[0].pod.vmIPv6NetworkCIDR: "10.0.0.0/24" is not an IPv6 network`,
		},
		"guest network of link-local IPv6": {
			devices("interfaces: [{name: a}]") + "\nnetworks: [{name: a, pod: {vmIPv6NetworkCIDR: 'fe80::/64'}}]",
			`spec.networks[0].pod.vmIPv6NetworkCIDR: "fe80::/64" is not an IPv6 network`,
		},

		"grace too long": {
			`terminationGracePeriodSeconds: 9223372037`,
			`spec.terminationGracePeriodSeconds: must be at most 2147483647`,
		},
		"grace": {
			`terminationGracePeriodSeconds: -1`, `spec.terminationGracePeriodSeconds: must not be negative`,
		},
		"hostname":       {`hostname: a.b`, `spec.hostname: "a.b" is not a DNS label`},
		"subdomain":      {`subdomain: A`, `spec.subdomain: "A" is not a DNS label`},
		"node selector":  {`nodeSelector: {"a b": c}`, `spec.nodeSelector`},
		"priority class": {`priorityClassName: A`, `spec.priorityClassName: "A" is not`},
		"scheduler":      {`schedulerName: A`, `spec.schedulerName: "A" is not`},
		"toleration":     {`tolerations: [{operator: Exists, value: x}]`, `spec.tolerations[0].value: cannot be set`},
		"toleration key": {`tolerations: [{value: x}]`, `spec.tolerations[0].key: is not set`},
		"spread": {
			`topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]`,
			`spec.topologySpreadConstraints[0].maxSkew: must be`,
		},
		"spread key": {
			`topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]`,
			`spec.topologySpreadConstraints[0].topologyKey: is not set`,
		},
		"DNS policy":  {`dnsPolicy: Some`, `spec.dnsPolicy: "Some" is not supported`},
		"DNS of none": {`dnsPolicy: None`, `spec.dnsConfig.nameservers: are not set`},
		"DNS server":  {`dnsConfig: {nameservers: [x]}`, `spec.dnsConfig.nameservers[0]: "x" is not an IP address`},
		"DNS servers": {
			`dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}`,
			`spec.dnsConfig.nameservers: are more than 3`,
		},
		"architecture": {`architecture: arm64`, `spec.architecture: "arm64" is not supported; use amd64`},
		"eviction": {
			`evictionStrategy: Shutdown`, `spec.evictionStrategy: "Shutdown" is not supported; use None`,
		},
		"eviction moves": {`evictionStrategy: LiveMigrate`, ``},
		"everything good": {
			`{hostname: a, subdomain: b, nodeSelector: {a: b}, tolerations: [{operator: Exists}], dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}}`,
			``,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			errs := ValidateVirtualMachineInstance(vmi, Actor{})
			got := Message(errs)
			if tc.want == "" && got != "" || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}

	t.Run("MACs twice", func(t *testing.T) {
		vmi := instance(t,
			devices("interfaces: [{name: a, macAddress: '02:00:00:00:00:0A'}, {name: b, "+
				"macAddress: '02-00-00-00-00-0a'}]")+"\nnetworks: [{name: a, pod: {}}, {name: b, pod: {}}]")
		got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
		if !strings.Contains(got,
			`spec.domain.devices.interfaces[1].macAddress: "02-00-00-00-00-0a" is the address of interface "a" too`) {
			t.Error(got)
		}
	})
}

// imports is the spec of a VM whose one volume is DataVolume d, with a template.
func imports(template string) string {
	return "{runStrategy: Always, dataVolumeTemplates: [{" + template +
		"}], template: {spec: {domain: {memory: {guest: 1Gi}}, volumes: [{name: root, dataVolume: {name: d}}]}}}"
}

func TestValidateVirtualMachine(t *testing.T) {
	for name, tc := range map[string]struct{ name, spec, want string }{
		"good":    {"vm", `{runStrategy: Always, template: {}}`, ``},
		"running": {"vm", `{running: true, template: {}}`, ``},
		"unknown run strategy": {
			"vm", `{runStrategy: Sometimes, template: {}}`,
			`spec.runStrategy: "Sometimes" is not supported; use Always, RerunOnFailure, Manual, Halted or Once`,
		},
		"empty run strategy": {"vm", `{runStrategy: "", template: {}}`, `spec.runStrategy: is empty`},
		"no run strategy":    {"vm", `{template: {}}`, `spec.runStrategy: is not set; use Always`},
		"both": {
			"vm", `{running: true, runStrategy: Always, template: {}}`,
			`spec.running: cannot be set together with spec.runStrategy`,
		},
		"no template":    {"vm", `{runStrategy: Always}`, `spec.template: is not set`},
		"253 characters": {strings.Repeat("x", 253), `{runStrategy: Always, template: {}}`, ``},
		"254 characters": {
			strings.Repeat("x", 254), `{runStrategy: Always, template: {}}`,
			`metadata.name: "` + strings.Repeat("x", 254) + `" is not a name: must be no more than 253`,
		},
		"name":    {"A", `{runStrategy: Always, template: {}}`, `metadata.name: "A" is not a name`},
		"no name": {"", `{runStrategy: Always, template: {}}`, `metadata.name: is not set`},
		"in the template": {
			"vm", `{runStrategy: Always, template: {spec: {hostname: A, domain: {memory: {guest: 1Gi}, devices: {}}}}}`,
			`spec.template.spec.hostname: "A"`,
		},
		"reserved label": {
			"vm", `{runStrategy: Always, template: {metadata: {labels: {kubevirt.io/nodeName: x}}}}`,
			`spec.template.metadata.labels[kubevirt.io/nodeName]: is set by virtkit itself`,
		},
		"ordinary label": {
			"vm", `{runStrategy: Always, template: {metadata: {labels: {kubevirt.io/size: small}}}}`, ``,
		},
		"malformed label": {
			"vm", `{runStrategy: Always, template: {metadata: {labels: {a: "b c"}}}}`, `spec.template.metadata.labels`,
		},
		"DataVolume": {"vm", imports(`metadata: {name: d}, spec: {source: {blank: {}}, storage: {}}`), ``},
		"no name of it": {
			"vm", imports(`spec: {source: {blank: {}}, storage: {}}`),
			`spec.dataVolumeTemplates[0].metadata.name: is not set`,
		},
		"unused DataVolume": {
			"vm", imports(`metadata: {name: e}, spec: {source: {blank: {}}, storage: {}}`),
			`spec.dataVolumeTemplates[0].metadata.name: no volume uses DataVolume "e"; add {`,
		},
		"in another namespace": {
			"vm", imports(`metadata: {name: d, namespace: other}, spec: {source: {blank: {}}, storage: {}}`),
			`spec.dataVolumeTemplates[0].metadata.namespace: the DataVolume is made in the VM's namespace, "default"`,
		},
		"one twice": {
			"vm",
			imports(
				`metadata: {name: d}, spec: {source: {blank: {}}, storage: {}}}, {metadata: {name: d}, spec: {source: {blank: {}}, storage: {}}`),
			`spec.dataVolumeTemplates[1].metadata.name: "d" is the name of another DataVolume too`,
		},
		"of no size": {
			"vm", imports(`metadata: {name: d}, spec: {source: {blank: {}}}`),
			`spec.dataVolumeTemplates[0].spec.storage: is not set`,
		},
		"pvc and storage": {
			"vm", imports(`metadata: {name: d}, spec: {source: {blank: {}}, storage: {}, pvc: {}}`),
			`spec.dataVolumeTemplates[0].spec.pvc: cannot be set together with storage`,
		},
		"filled by nothing": {
			"vm", imports(`metadata: {name: d}, spec: {storage: {}}`),
			`spec.dataVolumeTemplates[0].spec.source: is not set`,
		},
		"filled by two": {
			"vm", imports(`metadata: {name: d}, spec: {source: {blank: {}, http: {url: x}}, storage: {}}`),
			`spec.dataVolumeTemplates[0].spec.source: has more than one source`,
		},
		"an empty source": {
			"vm", imports(`metadata: {name: d}, spec: {source: {}, storage: {}}`),
			`spec.dataVolumeTemplates[0].spec.source: is empty; use one of blank`,
		},
		"source and reference": {
			"vm",
			imports(
				`metadata: {name: d}, spec: {source: {blank: {}}, sourceRef: {kind: DataSource, name: x}, storage: {}}`),
			`spec.dataVolumeTemplates[0].spec.sourceRef: cannot be set together with source`,
		},
		"unknown reference": {
			"vm", imports(`metadata: {name: d}, spec: {sourceRef: {kind: Other, name: x}, storage: {}}`),
			`spec.dataVolumeTemplates[0].spec.sourceRef.kind: "Other" is not supported; use DataSource`,
		},
		"filled by a populator": {
			"vm", imports(`metadata: {name: d}, spec: {storage: {dataSourceRef: {kind: X, name: x}}}`), ``,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tc.spec)
			vm.Name, vm.Namespace = tc.name, "default"
			DefaultVirtualMachine(vm, nil, testDefaults)
			errs := ValidateVirtualMachine(vm, testDefaults)
			got := Message(errs)
			if tc.want == "" && got != "" || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	t.Run("update", func(t *testing.T) {
		old := machine(t, `{template: {}}`) // not valid: admitted by something older
		same := old.DeepCopy()
		same.Labels = map[string]string{"a": "b"}
		if errs := ValidateVirtualMachineUpdate(same, old, testDefaults); errs != nil {
			t.Error(Message(errs))
		}
		changed := machine(t, `{running: true, runStrategy: Always, template: {}}`)
		if errs := ValidateVirtualMachineUpdate(changed, old, testDefaults); len(errs) != 1 {
			t.Error(Message(errs))
		}
		changed.DeletionTimestamp = &metav1.Time{}
		if errs := ValidateVirtualMachineUpdate(changed, old, testDefaults); errs != nil {
			t.Error(Message(errs))
		}
	})
}

func TestValidateInstanceUpdate(t *testing.T) {
	user, controller := ActorOf("jane"), ActorOf("system:serviceaccount:kubevirt:virt-controller")
	if user.Component || !controller.Component || ActorOf("system:serviceaccount:default:virt-controller").Component ||
		ActorOf("system:serviceaccount:kubevirt:virt-api") != (Actor{API: true}) {
		t.Fatal("ActorOf")
	}
	old := instance(t, "")
	relabelled := old.DeepCopy()
	relabelled.Labels = map[string]string{v1.NodeNameLabel: "n"}
	if errs := ValidateVirtualMachineInstanceUpdate(relabelled, old, controller); errs != nil {
		t.Error(Message(errs))
	}
	if got := Message(ValidateVirtualMachineInstanceUpdate(relabelled, old, user)); !strings.HasPrefix(got,
		"metadata.labels[kubevirt.io/nodeName]: is set by") {
		t.Error(got)
	}
	if got := Message(ValidateVirtualMachineInstanceUpdate(old, relabelled, user)); !strings.HasPrefix(got,
		"metadata.labels[kubevirt.io/nodeName]: is set by") {
		t.Error(got)
	}
	annotated := old.DeepCopy()
	annotated.Annotations = map[string]string{"a": "b"}
	if errs := ValidateVirtualMachineInstanceUpdate(annotated, old, user); errs != nil {
		t.Error(Message(errs))
	}
	// What a guest's firewall lets through is virt-controller's to say, and to take back.
	opened := old.DeepCopy()
	opened.Annotations = map[string]string{network.AnnotationPolicies: "{}"}
	for _, change := range [][2]*v1.VirtualMachineInstance{{opened, old}, {old, opened}} {
		if errs := ValidateVirtualMachineInstanceUpdate(change[0], change[1], controller); errs != nil {
			t.Error(Message(errs))
		}
		for _, by := range []Actor{user, {API: true}} {
			if got := Message(ValidateVirtualMachineInstanceUpdate(change[0], change[1], by)); !strings.HasPrefix(got,
				"metadata.annotations[virtkit.io/network-policies]: is set by") {
				t.Error(got)
			}
		}
	}
	if got := Message(ValidateVirtualMachineInstance(opened, user)); !strings.Contains(got,
		"metadata.annotations[virtkit.io/network-policies]: is set by") {
		t.Error(got)
	}
	// Nobody takes the room for what the components write.
	long := old.DeepCopy()
	long.Annotations = map[string]string{"a": strings.Repeat("x", maxAnnotations)}
	if errs := ValidateVirtualMachineInstanceUpdate(long, old, user); errs != nil {
		t.Errorf("on the pod network alone: %s", Message(errs))
	}
	long.Spec.Networks = append(long.Spec.Networks, v1.Network{Name: "red", NetworkSource: v1.NetworkSource{
		Multus: &v1.MultusNetwork{NetworkName: "red"},
	}})
	short := old.DeepCopy()
	short.Spec.Networks = long.Spec.Networks
	if got := Message(ValidateVirtualMachineInstanceUpdate(long, short, user)); !strings.HasPrefix(got,
		"metadata.annotations: have 147457 bytes together, and 147456 are the most") {
		t.Error(got)
	}
	if errs := ValidateVirtualMachineInstanceUpdate(long, long, user); errs != nil {
		t.Error(Message(errs))
	}
	if got := Message(ValidateVirtualMachineInstance(long, user)); !strings.Contains(got, "are the most") {
		t.Error(got)
	}
	if got := Message(ValidateVirtualMachineInstance(long, controller)); strings.Contains(got, "are the most") {
		t.Error(got) // its template was admitted
	}
	template := &v1.VirtualMachine{}
	template.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: long.Spec}
	template.Spec.Template.ObjectMeta.Annotations = long.Annotations
	if got := Message(ValidateTemplateRoom(template, nil)); !strings.HasPrefix(got,
		"spec.template.metadata.annotations: have 147457 bytes") {
		t.Error(got)
	}
	if got := ValidateTemplateRoom(template, template); got != nil {
		t.Errorf("as before: %s", Message(got))
	}
	// The addresses that a guest has are no other's: nobody gives a guest that is there those of others.
	for _, key := range []string{ipaddress.Wish, ipaddress.Annotation} {
		addressed := old.DeepCopy()
		addressed.Annotations = map[string]string{key: "{}"}
		if errs := ValidateVirtualMachineInstanceUpdate(addressed, old, controller); errs != nil {
			t.Error(Message(errs))
		}
		if got := Message(ValidateVirtualMachineInstanceUpdate(addressed, old, user)); !strings.HasPrefix(got,
			"metadata.annotations["+key+"]: is set by") {
			t.Error(got)
		}
	}
	changed := old.DeepCopy()
	changed.Spec.Hostname = "x"
	if got := Message(ValidateVirtualMachineInstanceUpdate(changed,
		old, user)); got != "spec: cannot be changed while the instance exists; delete it and create another" {
		t.Error(got)
	}
	shorter, grace := old.DeepCopy(), int64(0)
	shorter.Spec.TerminationGracePeriodSeconds = &grace
	if errs := ValidateVirtualMachineInstanceUpdate(shorter, old, Actor{API: true}); errs != nil {
		t.Error(Message(errs))
	}
	if errs := ValidateVirtualMachineInstanceUpdate(changed, old, Actor{API: true}); len(errs) != 1 {
		t.Error(Message(errs))
	}
	if errs := ValidateVirtualMachineInstanceUpdate(shorter, old, user); len(errs) != 1 {
		t.Error(Message(errs))
	}
	yes := true
	changed.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "web", Controller: &yes}}
	if got := Message(ValidateVirtualMachineInstanceUpdate(changed, old, user)); !strings.Contains(got,
		`change the VirtualMachine "web" and restart it`) {
		t.Error(got)
	}
}

func TestValidateKubeVirt(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"nothing": {`{}`, ``},
		"what is read": {
			`{configuration: {machineType: q35, cpuModel: host-model, developerConfiguration: {useEmulation: true}}, certificateRotateStrategy: {selfSigned: {ca: {duration: 24h}}}}`,
			``,
		},
		"feature gates": {
			`{configuration: {developerConfiguration: {featureGates: [Snapshot], disabledFeatureGates: [HostDisk]}}}`,
			``,
		},
		"CPU model of old": {
			`{configuration: {minCPUModel: Penryn}}`, `spec.configuration.minCPUModel: not supported by virtkit`,
		},
		"machines": {
			`{configuration: {emulatedMachines: ["q35*", "["]}}`,
			`spec.configuration.emulatedMachines[1]: "[" is not a pattern`,
		},
		"machines of amd64": {
			`{configuration: {architectureConfiguration: {amd64: {emulatedMachines: [""]}}}}`,
			`spec.configuration.architectureConfiguration.amd64.emulatedMachines[0]: "" is not a pattern`,
		},
		"smbios": {`{configuration: {smbios: {family: "a\tb"}}}`, `spec.configuration.smbios.family: must be at most`},
		"default interface": {
			`{configuration: {network: {defaultNetworkInterface: slirp}}}`,
			`spec.configuration.network.defaultNetworkInterface: "slirp" is not supported; use masquerade or bridge`,
		},
		"reference policy": {
			`{configuration: {instancetype: {referencePolicy: copy}}}`,
			`spec.configuration.instancetype.referencePolicy: "copy" is not supported; use reference, expand or expandAll`,
		},
		"machine type": {`{configuration: {machineType: pc}}`, `spec.configuration.machineType: "pc" is not supported`},
		"of amd64": {
			`{configuration: {architectureConfiguration: {amd64: {machineType: pc}}}}`,
			`spec.configuration.architectureConfiguration.amd64.machineType: "pc"`,
		},
		"CPU model": {`{configuration: {cpuModel: "a b"}}`, `spec.configuration.cpuModel: "a b"`},
		"overcommit": {
			`{configuration: {developerConfiguration: {memoryOvercommit: -1}}}`,
			`spec.configuration.developerConfiguration.memoryOvercommit: must not`,
		},
		"ratio": {
			`{configuration: {developerConfiguration: {cpuAllocationRatio: -1}}}`,
			`spec.configuration.developerConfiguration.cpuAllocationRatio: must not`,
		},
		"TSC": {
			`{configuration: {developerConfiguration: {minimumClusterTSCFrequency: 0}}}`,
			`spec.configuration.developerConfiguration.minimumClusterTSCFrequency: must be ticks a second`,
		},
		"request": {`{configuration: {cpuRequest: -1}}`, `spec.configuration.cpuRequest: must not`},
		"migrations": {
			`{configuration: {migrations: {bandwidthPerMigration: 64Mi, completionTimeoutPerGiB: 800, progressTimeout: 0, disableTLS: false}}}`,
			``,
		},
		"drain taint": {
			`{configuration: {migrations: {nodeDrainTaintKey: a b}}}`,
			`spec.configuration.migrations.nodeDrainTaintKey: "a b" is not the key of a taint`,
		},
		"eviction": {
			`{configuration: {evictionStrategy: Leave}}`,
			`spec.configuration.evictionStrategy: "Leave" is not supported`,
		},
		"bandwidth": {
			`{configuration: {migrations: {bandwidthPerMigration: 1k}}}`,
			`spec.configuration.migrations.bandwidthPerMigration: must be 0 (no limit) or at least 1Mi`,
		},
		"timeout": {
			`{configuration: {migrations: {completionTimeoutPerGiB: -1}}}`,
			`spec.configuration.migrations.completionTimeoutPerGiB: must not be negative`,
		},
		"none at a time": {
			`{configuration: {migrations: {parallelMigrationsPerCluster: 0}}}`,
			`spec.configuration.migrations.parallelMigrationsPerCluster: must be at least 1`,
		},
		"own network": {
			`{configuration: {migrations: {network: fast}}}`,
			`spec.configuration.migrations.network: not supported by virtkit`,
		},
		"pull policy": {
			`{configuration: {imagePullPolicy: X}}`, `spec.configuration.imagePullPolicy: "X" is not supported`,
		},
		"update": {
			`{workloadUpdateStrategy: {workloadUpdateMethods: [LiveMigrate, Evict], batchEvictionSize: 3, batchEvictionInterval: 30s}}`,
			``,
		},
		"binding plugin": {
			`{configuration: {network: {binding: {l2bridge: {domainAttachmentType: managedTap, migration: {}, networkAttachmentDefinition: ns/name, computeResourceOverhead: {requests: {memory: 1Mi}}}}}}}`,
			``,
		},
		"a sidecar": {
			`{configuration: {network: {binding: {passt: {sidecarImage: passt, migration: {}}}}}}`,
			`spec.configuration.network.binding.passt.sidecarImage: not supported by virtkit`,
		},
		"for a sidecar": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: tap, downwardAPI: device-info}}}}}`,
			`spec.configuration.network.binding.a.downwardAPI: not supported by virtkit`,
		},
		"no attachment": {
			`{configuration: {network: {binding: {a: {migration: {}}}}}}`,
			`spec.configuration.network.binding[a].domainAttachmentType: is not set; use tap or managedTap`,
		},
		"attachment": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: vhost}}}}}`,
			`spec.configuration.network.binding.a.domainAttachmentType: "vhost" is not supported; use tap or managedTap`,
		},
		"plugin's network": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: tap, networkAttachmentDefinition: a/b/c}}}}}`,
			`spec.configuration.network.binding[a].networkAttachmentDefinition: "a/b/c" is not NAME or`,
		},
		"plugin's name": {
			`{configuration: {network: {binding: {A_b: {domainAttachmentType: tap}}}}}`,
			`spec.configuration.network.binding[A_b]: "A_b" is not a name`,
		},
		"plugin's overhead": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: tap, computeResourceOverhead: {requests: {memory: -1}}}}}}}`,
			`spec.configuration.network.binding[a].computeResourceOverhead.requests.memory: must not be negative`,
		},
		"plugin's method": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: tap, migration: {method: link-refresh}}}}}}`,
			`spec.configuration.network.binding[a].migration.method: not supported by virtkit`,
		},
		"plugin's CPUs": {
			`{configuration: {network: {binding: {a: {domainAttachmentType: tap, computeResourceOverhead: {requests: {cpu: 1}}}}}}}`,
			`spec.configuration.network.binding.a.computeResourceOverhead.requests.cpu: not supported by virtkit`,
		},
		"update method": {
			`{workloadUpdateStrategy: {workloadUpdateMethods: [LiveMigrate, Reboot]}}`,
			`spec.workloadUpdateStrategy.workloadUpdateMethods[1]: "Reboot" is not supported; use LiveMigrate or Evict`,
		},
		"batch size": {
			`{workloadUpdateStrategy: {batchEvictionSize: 0}}`,
			`spec.workloadUpdateStrategy.batchEvictionSize: must be 1 or more`,
		},
		"interval": {
			`{workloadUpdateStrategy: {batchEvictionInterval: -1s}}`,
			`spec.workloadUpdateStrategy.batchEvictionInterval: must not be negative`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"},
				Spec:       *parse[v1.KubeVirtSpec](t, tc.spec),
			}
			errs := ValidateKubeVirt(kv, nil)
			got := Message(errs)
			if tc.want == "" && got != "" || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if errs := ValidateKubeVirt(kv, kv.DeepCopy()); errs != nil {
				t.Errorf("unchanged: %s", Message(errs))
			}
		})
	}
	if got := Message(ValidateKubeVirt(&v1.KubeVirt{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubevirt"},
	}, nil)); !strings.HasPrefix(got, "metadata.name: only kubevirt/kubevirt is read") {
		t.Error(got)
	}
}

func TestValidateMigrationPolicy(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"for all": {`{selectors: {}}`, ``},
		"all fields": {
			`{selectors: {namespaceSelector: {a: b}, virtualMachineInstanceSelector: {c: d}}, allowAutoConverge: true, bandwidthPerMigration: 64Mi, completionTimeoutPerGiB: 9, allowPostCopy: true, allowWorkloadDisruption: false}`,
			``,
		},
		"no selectors": {`{}`, `spec.selectors: is not set; set namespaceSelector or`},
		"no label":     {`{selectors: {namespaceSelector: {"a b": c}}}`, `spec.selectors.namespaceSelector: `},
		"bandwidth": {
			`{selectors: {}, bandwidthPerMigration: -1}`, `spec.bandwidthPerMigration: must not be negative`,
		},
		"any timeout": {`{selectors: {}, completionTimeoutPerGiB: 9223372036854775807}`, ``},
		"timeout": {
			`{selectors: {}, completionTimeoutPerGiB: -1}`, `spec.completionTimeoutPerGiB: must not be negative`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.MigrationPolicy{Spec: *parse[v1alpha1.MigrationPolicySpec](t, tc.spec)}
			if got := Message(ValidateMigrationPolicy(policy, nil)); tc.want == "" && got != "" ||
				!strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if errs := ValidateMigrationPolicy(policy, policy.DeepCopy()); errs != nil {
				t.Errorf("unchanged: %s", Message(errs))
			}
		})
	}
}

// Whatever the API server hands over, admission answers.
func FuzzAdmit(f *testing.F) {
	f.Add([]byte(`{"spec":` + mustJSON(basicSpec) + `}`))
	f.Add([]byte(`{"spec":{"template":{"spec":` + mustJSON(basicSpec) + `},"runStrategy":"Always"}}`))
	f.Add(
		[]byte(
			`{"spec":{"domain":{"cpu":{"cores":4294967295,"sockets":4294967295},"memory":{"guest":"1Ei"},"devices":{"interfaces":[{"name":"a","ports":[{"port":-1}]}]}},"networks":[{"name":"a"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		vmi := &v1.VirtualMachineInstance{}
		if yaml.Unmarshal(data, vmi) == nil {
			DefaultVirtualMachineInstance(vmi, testDefaults)
			first := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			DefaultVirtualMachineInstance(vmi, testDefaults)
			if again := Message(ValidateVirtualMachineInstance(vmi, Actor{})); again != first {
				t.Errorf("%q, then %q", first, again)
			}
		}
		vm := &v1.VirtualMachine{}
		if yaml.Unmarshal(data, vm) == nil {
			DefaultVirtualMachine(vm, nil, testDefaults)
			_ = ValidateVirtualMachine(vm, testDefaults)
		}
		kv := &v1.KubeVirt{}
		if yaml.Unmarshal(data, kv) == nil {
			_ = ValidateKubeVirt(kv, nil)
		}
	})
}

func mustJSON(text string) string {
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return string(out)
}

// A timeout of any size is one that its multiples fit into.
func TestMigrationTime(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		0: 0, 150: 150 * time.Second, 31536000: 365 * 24 * time.Hour, 31536001: 365 * 24 * time.Hour,
		math.MaxInt64: 365 * 24 * time.Hour,
	} {
		if got := MigrationTime(seconds); got != want {
			t.Errorf("%d s: %v, want %v", seconds, got, want)
		}
	}
}

func TestEFI(t *testing.T) {
	efi := &v1.EFI{}
	for name, test := range map[string]struct {
		firmware *v1.Firmware
		want     *v1.EFI
	}{
		"nothing is said": {nil, nil},
		"no bootloader":   {&v1.Firmware{}, nil},
		"BIOS":            {&v1.Firmware{Bootloader: &v1.Bootloader{BIOS: &v1.BIOS{}}}, nil},
		"UEFI":            {&v1.Firmware{Bootloader: &v1.Bootloader{EFI: efi}}, efi},
	} {
		if got := EFI(&v1.DomainSpec{Firmware: test.firmware}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
