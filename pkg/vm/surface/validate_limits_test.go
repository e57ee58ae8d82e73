package surface

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// limited is a guest with a disk, a volume without one, and the pod's network, which it does not list.
const limited = `{domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root}, {name: cd, cdrom: {}}]}},
  volumes: [{name: root, containerDisk: {image: x}}, {name: cd, containerDisk: {image: z}},
    {name: data, emptyDisk: {capacity: 1Gi}}]}`

// Limits of a VM's template and of a VMI are refused in a sentence that names the annotation and what to do.
func TestValidateLimits(t *testing.T) {
	for key, tc := range map[string]struct{ value, want string }{
		"disk.virtkit.io/root":         {"iops=500,bps=50Mi", ""},
		"disk.virtkit.io/data":         {"write-bps=1Mi", ""},
		"interface.virtkit.io/default": {"in=10Mi", ""},
		"disk.virtkit.io/rot": {
			"bps=50Mi", `metadata.annotations[disk.virtkit.io/rot]: no disk is named "rot"; name one that there is ` +
				`(root, data), or remove the annotation`,
		},
		"disk.virtkit.io/cd": {
			"bps=50Mi", `metadata.annotations[disk.virtkit.io/cd]: "cd" is a CD-ROM drive, and only disks have limits` +
				`; remove the annotation`,
		},
		"interface.virtkit.io/default ": {
			"in=1Mi", `metadata.annotations[interface.virtkit.io/default ]: no interface is named "default "; name ` +
				`one that there is (default), or remove the annotation`,
		},
	} {
		t.Run(key, func(t *testing.T) {
			vmi := instance(t, limited)
			vmi.Annotations = map[string]string{key: tc.value}
			DefaultVirtualMachineInstance(vmi, testDefaults)
			if got := Message(ValidateVirtualMachineInstance(vmi, Actor{})); got != tc.want {
				t.Errorf("VMI:\ngot  %s\nwant %s", got, tc.want)
			}
			strategy := v1.RunStrategyHalted
			vm := &v1.VirtualMachine{}
			vm.Name, vm.Spec.RunStrategy = "web", &strategy
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: instance(t, limited).Spec}
			vm.Spec.Template.ObjectMeta.Annotations = vmi.Annotations
			got := Message(ValidateVirtualMachine(vm, testDefaults))
			if tc.want == "" && got != "" || tc.want != "" && !strings.HasSuffix(got, "spec.template."+tc.want) {
				t.Errorf("VM:\ngot  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// What changes of a VMI is checked, and what it has already is not: its disk may have been unplugged.
func TestValidateLimitsOfUpdate(t *testing.T) {
	old := instance(t, limited)
	old.Annotations = map[string]string{"disk.virtkit.io/gone": "bps=50Mi", "disk.virtkit.io/root": "bps=50Mi"}
	DefaultVirtualMachineInstance(old, testDefaults)
	for value, want := range map[string]string{
		"bps=50Mi": "", "bps=1Mi": "",
		"bps=1": `metadata.annotations[disk.virtkit.io/root]: bps: 1 is less than 4Ki a second; give bytes with ` +
			`their unit, such as 50Mi`,
	} {
		vmi := old.DeepCopy()
		vmi.Annotations["disk.virtkit.io/root"] = value
		if got := Message(ValidateVirtualMachineInstanceUpdate(vmi, old, Actor{})); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", value, got, want)
		}
	}
}

// The annotation with which a guest asks to send as others names interfaces of bridges.
func TestValidateSpoofing(t *testing.T) {
	const spec = `{domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}},
  {name: red, bridge: {}}, {name: blue, bridge: {}}]}}, networks: [{name: default, pod: {}},
  {name: red, multus: {networkName: red}}, {name: blue, multus: {networkName: blue}}]}`
	const at = "metadata.annotations[virtkit.io/allow-spoofing]: "
	for value, want := range map[string]string{
		"red":         "",
		" blue , red": "",
		"": at + "names no interface; name those whose guest may send as somebody else, with commas between, or " +
			"remove the annotation",
		"green": at + `no interface is named "green"; name one that there is, or remove it from the annotation`,
		"red,default": at + `interface "default" is not on a bridge, and only what guests send there is looked at; ` +
			`remove it from the annotation`,
	} {
		vmi := instance(t, spec)
		vmi.Annotations = map[string]string{"virtkit.io/allow-spoofing": value}
		DefaultVirtualMachineInstance(vmi, testDefaults)
		if got := Message(ValidateVirtualMachineInstance(vmi, Actor{})); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", value, got, want)
		}
		if got := Message(ValidateVirtualMachineInstanceUpdate(vmi, vmi, Actor{})); got != "" {
			t.Errorf("%q, as before: %s", value, got)
		}
	}
}

// The annotation with which a guest is wished to have addresses names interfaces and addresses.
func TestValidateAddresses(t *testing.T) {
	const spec = `{domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}},
  {name: red, bridge: {}}]}}, networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red}}]}`
	const at = "metadata.annotations[network.kubevirt.io/addresses]: "
	for value, want := range map[string]string{
		`{"red":["192.0.2.7/24","fd00::7"]}`: "",
		`{"default":["192.0.2.7"]}`:          "", // of a network that other components know
		`{"red":["192.0.2.0/24"]}`: at + `interface red: "192.0.2.0/24" is the address of the network 192.0.2.0/24 ` +
			`itself; give one in it`,
		`{"green":["192.0.2.7"]}`: at + `no interface is named "green"; name one that there is, or remove it from the ` +
			`annotation network.kubevirt.io/addresses`,
	} {
		vmi := instance(t, spec)
		vmi.Annotations = map[string]string{"network.kubevirt.io/addresses": value}
		DefaultVirtualMachineInstance(vmi, testDefaults)
		if got := Message(ValidateVirtualMachineInstance(vmi, Actor{})); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", value, got, want)
		}
	}
}
