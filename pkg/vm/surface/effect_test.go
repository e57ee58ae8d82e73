package surface_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// base is the spec that each field is set in.
const base = `
domain:
  memory: {guest: 1Gi}
  devices:
    disks: [{name: root, disk: {bus: virtio}}]
    interfaces: [{name: default, masquerade: {}}]
networks: [{name: default, pod: {}}]
volumes: [{name: root, containerDisk: {image: x}}]
`

const (
	withCDROM = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, cdrom: {}}], " +
		"interfaces: [{name: default, masquerade: {}}]}}"
	withClaim     = "volumes: [{name: root, persistentVolumeClaim: {claimName: c}}]"
	withData      = "volumes: [{name: root, dataVolume: {name: d}}]"
	withCloudInit = "volumes: [{name: root, cloudInitNoCloud: {userData: x}}]"
	withDrive     = "volumes: [{name: root, cloudInitConfigDrive: {userData: x}}]"
	withEmpty     = "volumes: [{name: root, emptyDisk: {capacity: 1Gi}}]"
	withNothing   = "{domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " +
		"interfaces: [{name: default}]}}}"
)

// examples sets each field of the table to a value that must show. Values are YAML; before changes sections of
// the base, for the object that is compared with too.
var examples = map[string]struct{ before, value string }{
	"priorityClassName":                            {value: "high"},
	"domain.resources.requests.cpu":                {value: "1"},
	"domain.resources.requests.memory":             {value: "2Gi"},
	"domain.resources.limits.cpu":                  {value: "1"},
	"domain.resources.limits.memory":               {value: "2Gi"},
	"domain.cpu.cores":                             {value: "2"},
	"domain.cpu.sockets":                           {value: "2"},
	"domain.cpu.threads":                           {value: "2"},
	"domain.cpu.maxSockets":                        {value: "4"},
	"domain.cpu.dedicatedCpuPlacement":             {value: "true"},
	"domain.cpu.isolateEmulatorThread":             {before: withDedicated, value: "true"},
	"domain.cpu.realtime.mask":                     {before: withDedicated, value: `"0"`},
	"domain.cpu.numa.guestMappingPassthrough":      {before: withDedicated, value: "{}"},
	"domain.memory.maxGuest":                       {value: "2Gi"},
	"domain.memory.hugepages.pageSize":             {value: "2Mi"},
	"domain.memory.reservedOverhead.addedOverhead": {value: "64Mi"},
	"domain.resources.overcommitGuestOverhead":     {value: "true"},
	"domain.cpu.model":                             {value: "Nehalem"},
	"domain.cpu.features.name":                     {value: "vmx"},
	"domain.cpu.features.policy": {
		before: "domain: {cpu: {features: [{name: vmx}]}, memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
			"disk: {bus: virtio}}]}}",
		value: "disable",
	},
	"domain.memory.guest":                       {value: "2Gi"},
	"domain.machine.type":                       {value: "pc-q35-9.2"},
	"domain.firmware.uuid":                      {value: "5d307ca9-b3ef-428c-8861-06e72d69f223"},
	"domain.firmware.bootloader.bios.useSerial": {value: "true"},
	"domain.firmware.bootloader.efi":            {value: "{}"},
	"domain.firmware.bootloader.efi.secureBoot": {
		before: "domain: {firmware: {bootloader: {efi: {}}}, memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
			"disk: {bus: virtio}}]}}",
		value: "false",
	},
	"domain.firmware.serial":              {value: "s"},
	"domain.clock.utc":                    {value: "{}"},
	"domain.clock.utc.offsetSeconds":      {value: "5"},
	"domain.clock.timezone":               {value: "Europe/Vienna"},
	"domain.clock.timer.hpet.tickPolicy":  {value: "delay"},
	"domain.clock.timer.hpet.present":     {value: "false"},
	"domain.clock.timer.kvm.present":      {value: "false"},
	"domain.clock.timer.pit.tickPolicy":   {value: "delay"},
	"domain.clock.timer.pit.present":      {value: "false"},
	"domain.clock.timer.rtc.tickPolicy":   {value: "catchup"},
	"domain.clock.timer.rtc.present":      {value: "false"},
	"domain.clock.timer.rtc.track":        {value: "wall"},
	"domain.clock.timer.hyperv.present":   {value: "false"},
	"domain.features.acpi.enabled":        {value: "false"},
	"domain.features.apic.enabled":        {value: "false"},
	"domain.features.apic.endOfInterrupt": {value: "true"},
	"domain.features.smm.enabled":         {value: "true"},
	"domain.features.kvm.hidden":          {value: "true"},
	"domain.features.pvspinlock.enabled":  {value: "false"},
	"domain.devices.disableHotplug":       {value: "true"},
	"domain.devices.disks.name": {
		before: "volumes: [{name: root, containerDisk: {image: x}}, {name: other, emptyDisk: {capacity: 1Gi}}]",
		value:  "other",
	},
	"domain.devices.disks.disk.bus":                            {value: "scsi"},
	"domain.devices.disks.disk.readonly":                       {value: "true"},
	"domain.devices.disks.cdrom.bus":                           {before: withCDROM, value: "usb"},
	"domain.devices.disks.cdrom.tray":                          {before: withCDROM, value: "open"},
	"domain.devices.disks.bootOrder":                           {value: "7"},
	"domain.devices.disks.serial":                              {value: "s"},
	"domain.devices.disks.cache":                               {value: "writeback"},
	"domain.devices.disks.io":                                  {value: "threads"},
	"domain.devices.disks.blockSize.custom.logical":            {value: "4096"},
	"domain.devices.disks.blockSize.custom.physical":           {value: "4096"},
	"domain.devices.disks.blockSize.custom.discardGranularity": {value: "4096"},
	"domain.devices.disks.shareable":                           {value: "true"},
	"domain.devices.disks.errorPolicy":                         {value: "report"},
	"domain.devices.watchdog.name": {
		before: "domain: {memory: {guest: 1Gi}, devices: {watchdog: {name: a, i6300esb: {}}}}", value: "b",
	},
	"domain.devices.watchdog.i6300esb": {value: "{}"},
	"domain.devices.watchdog.i6300esb.action": {
		before: "domain: {memory: {guest: 1Gi}, devices: {watchdog: {name: a, i6300esb: {}}}}", value: "poweroff",
	},
	"domain.devices.interfaces.name": {
		before: "networks: [{name: default, pod: {}}, {name: other, pod: {}}]", value: "other",
	},
	"domain.devices.interfaces.model":        {value: "e1000"},
	"domain.devices.interfaces.bridge":       {before: withNothing, value: "{}"},
	"domain.devices.interfaces.masquerade":   {before: withNothing, value: "{}"},
	"domain.devices.interfaces.sriov":        {before: withMultusNothing, value: "{}"},
	"domain.devices.interfaces.binding.name": {before: withNothing, value: "l2bridge"},
	"domain.devices.interfaces.ports.name": {
		before: "domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}, " +
			"ports: [{port: 80}]}]}}",
		value: "http",
	},
	"domain.devices.interfaces.ports.protocol": {
		before: "domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}, " +
			"ports: [{port: 80}]}]}}",
		value: "UDP",
	},
	"domain.devices.interfaces.ports.port": {value: "80"},
	"domain.devices.interfaces.macAddress": {value: "'02:00:00:00:00:01'"},
	"domain.devices.interfaces.bootOrder":  {value: "1"},
	"domain.devices.interfaces.state":      {value: "down"},
	"domain.devices.inputs.bus": {
		before: "domain: {memory: {guest: 1Gi}, devices: {inputs: [{name: a}]}}", value: "virtio",
	},
	"domain.devices.inputs.type": {
		before: "domain: {memory: {guest: 1Gi}, devices: {inputs: [{name: a}]}}", value: "keyboard",
	},
	"domain.devices.inputs.name": {value: "a"},
	"domain.devices.autoattachPodInterface": {
		before: "{domain: {memory: {guest: 1Gi}, devices: {}}, networks: null}", value: "false",
	},
	"domain.devices.autoattachGraphicsDevice": {value: "false"},
	"domain.devices.autoattachSerialConsole":  {value: "false"},
	"domain.devices.logSerialConsole":         {value: "true"},
	"domain.devices.autoattachMemBalloon":     {value: "false"},
	"domain.devices.autoattachInputDevice":    {value: "true"},
	"domain.devices.rng":                      {value: "{}"},
	"domain.devices.panicDevices.model":       {value: "isa"},
	"domain.devices.tpm.persistent":           {value: "true"},
	"domain.firmware.bootloader.efi.persistent": {
		before: "domain: {firmware: {bootloader: {efi: {}}}, memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
			"disk: {bus: virtio}}]}}",
		value: "true",
	},
	"domain.devices.tpm.enabled":  {value: "true"},
	"domain.devices.video.type":   {value: "virtio"},
	"domain.chassis.manufacturer": {value: "a"},
	"domain.chassis.version":      {value: "a"},
	"domain.chassis.serial":       {value: "a"},
	"domain.chassis.asset":        {value: "a"},
	"domain.chassis.sku":          {value: "a"},
	"domain.rebootPolicy":         {value: "Terminate"},
	"nodeSelector":                {value: "{a: b}"},
	"affinity": {
		value: "{nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}",
	},
	"schedulerName": {value: "mine"},
	"tolerations":   {value: "[{operator: Exists}]"},
	"topologySpreadConstraints": {
		value: "[{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
	},
	"terminationGracePeriodSeconds": {value: "5"},
	"volumes.name": {
		before: "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: a}]}}", value: "a",
	},
	"volumes.persistentVolumeClaim.claimName":    {before: withClaim, value: "d"},
	"volumes.persistentVolumeClaim.readOnly":     {before: withClaim, value: "true"},
	"volumes.persistentVolumeClaim.hotpluggable": {before: withClaim, value: "true"},
	"volumes.dataVolume.name":                    {before: withData, value: "e"},
	"volumes.dataVolume.hotpluggable":            {before: withData, value: "true"},
	"volumes.cloudInitNoCloud.secretRef.name": {
		before: "volumes: [{name: root, cloudInitNoCloud: {}}]", value: "s",
	},
	"volumes.cloudInitNoCloud.userDataBase64": {
		before: "volumes: [{name: root, cloudInitNoCloud: {}}]", value: "eA==",
	},
	"volumes.cloudInitNoCloud.userData":                  {before: withCloudInit, value: "other"},
	"volumes.cloudInitNoCloud.networkDataSecretRef.name": {before: withCloudInit, value: "s"},
	"volumes.cloudInitNoCloud.networkDataBase64":         {before: withCloudInit, value: "eA=="},
	"volumes.cloudInitNoCloud.networkData":               {before: withCloudInit, value: "other"},
	"volumes.cloudInitConfigDrive.secretRef.name": {
		before: "volumes: [{name: root, cloudInitConfigDrive: {}}]", value: "s",
	},
	"volumes.cloudInitConfigDrive.userDataBase64": {
		before: "volumes: [{name: root, cloudInitConfigDrive: {}}]", value: "eA==",
	},
	"volumes.cloudInitConfigDrive.userData":                  {before: withDrive, value: "other"},
	"volumes.cloudInitConfigDrive.networkDataSecretRef.name": {before: withDrive, value: "s"},
	"volumes.cloudInitConfigDrive.networkDataBase64":         {before: withDrive, value: "eA=="},
	"volumes.cloudInitConfigDrive.networkData":               {before: withDrive, value: "other"},
	"volumes.sysprep.secret.name": {
		before: "volumes: [{name: root, sysprep: {}}]", value: "s",
	},
	"volumes.sysprep.configMap.name":        {before: "volumes: [{name: root, sysprep: {}}]", value: "c"},
	"volumes.containerDisk.image":           {value: "other"},
	"volumes.containerDisk.imagePullSecret": {value: "s"},
	"volumes.containerDisk.path":            {value: "/disk/b.img"},
	"volumes.containerDisk.imagePullPolicy": {value: "Always"},
	"volumes.emptyDisk.capacity":            {before: withEmpty, value: "2Gi"},
	"hostname":                              {value: "h"},
	"subdomain":                             {value: "s"},
	"networks.name": {
		before: "domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: a, masquerade: {}}]}}", value: "a",
	},
	"networks.pod":                   {before: "networks: [{name: default}]", value: "{}"},
	"networks.pod.vmNetworkCIDR":     {value: "10.9.0.0/24"},
	"networks.pod.vmIPv6NetworkCIDR": {value: "fd20::/120"},
	"networks.multus.networkName":    {before: withMultus, value: "other/blue"},
	"networks.multus.default":        {before: withMultus, value: "true"},
	"dnsPolicy":                      {value: "Default"},
	"dnsConfig":                      {value: "{nameservers: [1.1.1.1]}"},

	"accessCredentials.sshPublicKey.source.secret.secretName": {
		before: withKeys("qemuGuestAgent: {users: [a]}"), value: "other",
	},
	"accessCredentials.sshPublicKey.propagationMethod.noCloud": {
		before: withKeys("") + "\n" + withCloudInit, value: "{}",
	},
	"accessCredentials.sshPublicKey.propagationMethod.configDrive": {
		before: withKeys("") + "\n" + withDrive, value: "{}",
	},
	"accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent.users": {
		before: withKeys("qemuGuestAgent: {users: [a]}"), value: "[b]",
	},
	"accessCredentials.userPassword.source.secret.secretName": {before: withPassword, value: "other"},
	"accessCredentials.userPassword.propagationMethod.qemuGuestAgent": {
		before: "accessCredentials: [{userPassword: {source: {secret: {secretName: s}}, propagationMethod: {}}}]",
		value:  "{}",
	},
}

const withDedicated = "domain: {cpu: {dedicatedCpuPlacement: true}, memory: {guest: 1Gi, " +
	"hugepages: {pageSize: 2Mi}}, devices: {disks: [{name: root, disk: {bus: virtio}}]}}"

const withMultus = "{domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, bridge: {}}]}}, " +
	"networks: [{name: default, multus: {networkName: red}}]}"

const withMultusNothing = "{domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default}]}}, " +
	"networks: [{name: default, multus: {networkName: red}}]}"

const withPassword = "accessCredentials: [{userPassword: {source: {secret: {secretName: s}}, " +
	"propagationMethod: {qemuGuestAgent: {}}}}]"

func withKeys(way string) string {
	return "accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {" + way + "}}}]"
}

// exempt are the fields that may only say what happens anyway.
var exempt = map[string]bool{
	"domain.devices.disks.cdrom.readonly":    true,
	"evictionStrategy":                       true, // pkg/vm/eviction
	"startStrategy":                          true, // how the domain is made, not what it is: tests/e2e
	"architecture":                           true,
	"domain.memory.reservedOverhead.memLock": true, // pkg/vm/passthrough
}

// sameAsDefault are the fields whose example is what an absent field means; their presence changes nothing.
var sameAsDefault = map[string]bool{"domain.devices.interfaces.masquerade": true}

// TestEveryFieldHasAnEffect walks the table: whatever field is set, something that is made of the object
// changes. A field that is in the table but honoured by nobody fails here.
func TestEveryFieldHasAnEffect(t *testing.T) {
	for _, kind := range surface.Kinds() {
		if kind.Name != "VirtualMachineInstance" {
			continue
		}
		for _, f := range kind.Fields {
			if exempt[f.Path] {
				continue
			}
			t.Run(f.Path, func(t *testing.T) {
				example, ok := examples[f.Path]
				if !ok {
					example, ok = probeExamples[f.Path]
				}
				if !ok {
					t.Fatal("no example: add one, or take the field out of the table")
				}
				spec := merged(t, example.before)
				without := produced(t, spec)
				set(t, spec, f.Path, example.value)
				with := produced(t, spec)
				if with == without && !sameAsDefault[f.Path] {
					t.Errorf("%s: %s changes nothing", f.Path, example.value)
				}
			})
		}
	}
}

// merged is the base with sections replaced.
func merged(t *testing.T, sections string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, text := range []string{base, sections} {
		part := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &part); err != nil {
			t.Fatal(err)
		}
		maps.Copy(out, part)
	}
	return out
}

// lists are the elements of paths that are lists of objects.
var lists = map[string]bool{
	"disks": true, "filesystems": true, "interfaces": true, "inputs": true, "ports": true, "panicDevices": true,
	"gpus": true, "hostDevices": true, "volumes": true, "networks": true, "cpu.features": true,
	"accessCredentials": true, "httpHeaders": true,
}

// set writes a value at a path, in the first element of each list on the way.
func set(t *testing.T, at map[string]any, path, text string) {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	names := strings.Split(path, ".")
	for i, name := range names[:len(names)-1] {
		if lists[name] || i > 0 && lists[names[i-1]+"."+name] {
			list, _ := at[name].([]any)
			if len(list) == 0 {
				list = []any{map[string]any{}}
				at[name] = list
			}
			at = list[0].(map[string]any)
			continue
		}
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[names[len(names)-1]] = value
}

// produced is everything that is made of an instance, as text: pod, network plan, disk plan, domains with and
// without KVM, or the errors of making them.
func produced(t *testing.T, spec map[string]any) string {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	object := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm", UID: "c0ffee00-0000-4000-8000-000000000000"},
	}
	if err := yaml.UnmarshalStrict(text, &object.Spec); err != nil {
		t.Fatal(err)
	}
	surface.DefaultVirtualMachineInstance(object, surface.Defaults{})
	var out strings.Builder
	show := func(what string, value any, err error) {
		if err != nil {
			fmt.Fprintf(&out, "%s: error %v\n", what, err)
			return
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s: %s\n", what, text)
	}

	pod := vmicontroller.Pod(object,
		vmicontroller.Facts{Config: config.Default(), Image: "launcher", ImagePullPolicy: corev1.PullIfNotPresent})
	show("pod", pod, nil)

	plan, err := network.NewPlan(object, network.Pod{
		Links: []network.Link{{
			Name: "eth0", MAC: "02:aa:bb:cc:dd:ee", MTU: 1450,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.5/24"), netip.MustParsePrefix("fd42::5/64")},
			Routes: []network.Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.1.0.1")},
			},
		}},
		Search:  []string{"default.svc.cluster.local"},
		Plugins: network.Plugins{"l2bridge": {DomainAttachmentType: v1.ManagedTap}},
	})
	show("network", plan, err)

	facts := map[string]disk.Facts{}
	for _, volume := range object.Spec.Volumes {
		f := disk.Facts{Path: "/image", Header: disk.Header{Format: "qcow2", Size: 1 << 30}, Exists: true}
		// pkg/vm/disk finds the image in the file system, where there is none here.
		if volume.ContainerDisk != nil && volume.ContainerDisk.Path != "" {
			f.Path = volume.ContainerDisk.Path
		}
		// So it does with the keys in the Secrets.
		f.PublicKeys = disk.KeySecrets(&object.Spec, &volume)
		f.Block = slices.ContainsFunc(object.Spec.Domain.Devices.Disks, func(d v1.Disk) bool {
			return d.LUN != nil && d.Name == volume.Name
		})
		facts[volume.Name] = f
	}
	disks, err := disk.NewPlan(object,
		disk.Dirs{Disks: "/d", ContainerDisks: "/c", Claims: "/v", BlockDevices: "/b", Secrets: "/s"}, facts)
	show("disks", disks, err)
	show("agent", credentials.NewPlan(&object.Spec), nil)

	// pkg/vm/disk finds the kernel in the file system, too.
	kernel, initrd := "", ""
	if boot := object.Spec.Domain.Firmware; boot != nil && boot.KernelBoot != nil && boot.KernelBoot.Container != nil {
		kernel, initrd = boot.KernelBoot.Container.KernelPath, boot.KernelBoot.Container.InitrdPath
	}
	for _, kvm := range []bool{true, false} {
		built, err := domain.Build(object, domain.Facts{
			Kernel: kernel, Initrd: initrd,
			KVM: kvm, CPUs: []domain.HostCPU{{ID: 2, Core: 2}, {ID: 3, Core: 2}}, Emulator: "/qemu", NVRAM: "/nvram",
			Disks: disks.Sources, Network: plan,
			Firmware:     domain.Firmware{Code: "/code", Vars: "/vars", SecureCode: "/scode", SecureVars: "/svars"},
			SerialSocket: "/serial", SerialLog: "/log", VNCSocket: "/vnc", AgentSocket: "/agent",
			USBSockets: []string{"/usb"}, Secrets: "/s",
			PluginVariables: map[string]string{
				"MDEV_PCI_RESOURCE_V_GPU": "f3e5c1a0-2f5d-4a43-9a3c-0a6c7c8d9e01",
				"PCI_RESOURCE_V_DEVICE":   "0000:01:00.0",
			},
		})
		var xml string
		if err == nil {
			xml, err = built.Marshal()
		}
		show("domain", xml, err)
	}
	return out.String()
}
