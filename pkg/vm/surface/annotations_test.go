package surface

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidateAnnotations(t *testing.T) {
	for name, tc := range map[string]struct{ key, value, want string }{
		"anything": {"example.com/a", "b", ""},
		"hook sidecars": {
			hookSidecars, `[{"image": "x"}]`,
			"metadata.annotations[hooks.kubevirt.io/hookSidecars]: not supported by virtkit",
		},
		"no hook sidecars": {hookSidecars, "", ""},
		"ignition":         {v1.IgnitionAnnotation, `{"ignition": {"version": "3.4.0"}}`, ""},
		"ignition as YAML": {
			v1.IgnitionAnnotation, "passwd: secret",
			"metadata.annotations[kubevirt.io/ignitiondata]: is not the JSON object that Ignition reads",
		},
		"ignition's number": {
			v1.IgnitionAnnotation, "7", "metadata.annotations[kubevirt.io/ignitiondata]: is not the JSON object",
		},
		"log filters": {v1.CustomLibvirtLogFiltersAnnotation, "2:qemu.qemu_monitor 3:*", ""},
		"log filters that end the string": {
			v1.CustomLibvirtLogFiltersAnnotation, "1:*\"\nlog_outputs=\"1:file:/x",
			`metadata.annotations[kubevirt.io/libvirt-log-filters]: the name of "1:*\"" has more than letters, digits and any of _.*; write libvirt's log filters with spaces between, such as 3:remote 3:rpc 1:qemu`,
		},
		"ignition's null": {
			v1.IgnitionAnnotation, "null", "metadata.annotations[kubevirt.io/ignitiondata]: is not the JSON object",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, "{}")
			vmi.Annotations = map[string]string{tc.key: tc.value}
			DefaultVirtualMachineInstance(vmi, testDefaults)
			got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" || strings.Contains(got, "secret") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A level that is none is refused: as in KubeVirt no launcher starts with it.
func TestValidateLogLabels(t *testing.T) {
	for level, want := range map[string]string{
		"0": "", "9": "", "10": "", "99999999999999999999": "",
		"loud": `metadata.labels[logVerbosity]: must be a number from 0 to 9, which is how much the launcher logs`,
		"-1":   `metadata.labels[logVerbosity]: must be a number from 0 to 9, which is how much the launcher logs`,
	} {
		vmi := instance(t, "{}")
		vmi.Labels = map[string]string{"logVerbosity": level}
		DefaultVirtualMachineInstance(vmi, testDefaults)
		if got := Message(ValidateVirtualMachineInstance(vmi, Actor{})); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", level, got, want)
		}
	}
}

// What KubeVirt admits although it has no effect there is admitted, and said.
func TestNetworkWarnings(t *testing.T) {
	const ports = "ports: [{port: 80, name: web}]"
	const cidrs = "vmNetworkCIDR: 10.9.0.0/24, vmIPv6NetworkCIDR: 'fd20::/120'"
	limits := "spec.domain.devices.interfaces[0].ports limits nothing with %s, where everything gets to the guest; " +
		"probes and policies may use the ports' names"
	cidr := "spec.networks[0].pod.%s has no effect with %s, where the guest is on the pod's network itself"
	for binding, want := range map[string][]string{
		"masquerade: {}": nil,
		"model: virtio":  nil, // which binding it has is not said yet
		"bridge: {}": {
			fmt.Sprintf(limits, "bridge"), fmt.Sprintf(cidr, "vmIPv6NetworkCIDR", "bridge"),
			fmt.Sprintf(cidr, "vmNetworkCIDR", "bridge"),
		},
		"binding: {name: x}": {
			fmt.Sprintf(limits, "a network binding plugin"),
			fmt.Sprintf(cidr, "vmIPv6NetworkCIDR", "a network binding plugin"),
			fmt.Sprintf(cidr, "vmNetworkCIDR", "a network binding plugin"),
		},
	} {
		vmi := instance(t, "domain: {devices: {interfaces: [{name: a, "+binding+", "+ports+"}]}}\n"+
			"networks: [{name: a, pod: {"+cidrs+"}}]")
		if diff := cmp.Diff(want, Warnings("", nil, &vmi.Spec)); diff != "" {
			t.Errorf("%s: %s", binding, diff)
		}
	}
	vmi := instance(t, "domain: {devices: {interfaces: [{name: a, sriov: {}, "+ports+"}]}}\n"+
		"networks: [{name: a, multus: {networkName: x}}]")
	if diff := cmp.Diff([]string{fmt.Sprintf(limits, "sriov")}, Warnings("", nil, &vmi.Spec)); diff != "" {
		t.Error(diff)
	}
}

func TestMachineWarnings(t *testing.T) {
	running := true
	vm := &v1.VirtualMachine{}
	vm.Spec.Running = &running
	vm.Annotations = map[string]string{"disk.virtkit.io/root": "bps=1Mi", "example.com/a": "b"}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{
		v1.PlacePCIDevicesOnRootComplex: "true", v1.KeepLauncherAfterFailureAnnotation: "", "example.com/a": "b",
	}
	memory := resource.MustParse("64Mi")
	vm.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{}}}
	want := []string{
		"spec.running is deprecated; use spec.runStrategy",
		"metadata.annotations[disk.virtkit.io/root] limits nothing: rate limits are among " +
			"spec.template.metadata.annotations",
		"spec.template.metadata.annotations[kubevirt.io/keep-launcher-alive-after-failure] has no effect in " +
			"virtkit: a launcher pod whose guest failed stays until its instance goes; see `virtctl logs`",
		"spec.template.metadata.annotations[kubevirt.io/placePCIDevicesOnRootComplex] has no effect in virtkit: " +
			"devices are behind PCIe root ports, where they can be plugged and unplugged",
	}
	want = append(want,
		"spec.template.spec.domain.memory.guest: 64Mi is too little for a guest with UEFI firmware "+
			"to boot; that takes 128Mi")
	if diff := cmp.Diff(want, MachineWarnings(vm)); diff != "" {
		t.Error(diff)
	}
}
