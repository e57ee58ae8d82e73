package surface

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

func TestAllowed(t *testing.T) {
	const bridged = "domain: {devices: {interfaces: [{name: a, bridge: {}}, {name: b, " +
		"bridge: {}}]}}\nnetworks: [{name: a, multus: {networkName: x}}, {name: b, pod: {}}]"
	const plugged = "domain: {devices: {interfaces: [{name: a, binding: {name: l2bridge}}]}}\n" +
		"networks: [{name: a, pod: {}}]"
	machine := func(name string) string { return "domain: {machine: {type: " + name + "}}" }
	for name, tc := range map[string]struct{ configuration, spec, want string }{
		"nothing said": {"{}", machine("pc-q35-9.2") + "", ""},
		"machine":      {"emulatedMachines: [pc-q35-9.*]", machine("pc-q35-9.2"), ""},
		"another machine": {
			"emulatedMachines: [q35, pc-q35-9.*]", machine("pc-q35-8.0"),
			`spec.domain.machine.type: "pc-q35-8.0" is not among the machine types of this installation; use q35 or pc-q35-9.*`,
		},
		"by architecture": {
			"{emulatedMachines: [q35], architectureConfiguration: {amd64: {emulatedMachines: [pc-q35*]}}}",
			machine("q35"), `spec.domain.machine.type: "q35" is not among`,
		},
		"bridge": {"network: {permitBridgeInterfaceOnPodNetwork: true}", bridged, ""},
		"no bridge": {
			"network: {permitBridgeInterfaceOnPodNetwork: false}", bridged,
			"spec.domain.devices.interfaces[1].bridge: is not allowed on the pod network",
		},
		"binding plugin": {"network: {binding: {l2bridge: {domainAttachmentType: managedTap}}}", plugged, ""},
		"another plugin": {
			"network: {binding: {passt: {}, other: {domainAttachmentType: tap}}}", plugged,
			`spec.domain.devices.interfaces[0].binding.name: "l2bridge" is not a network binding plugin of this installation, which has other, passt; an administrator can`,
		},
		"no plugin": {
			"{}", plugged,
			`spec.domain.devices.interfaces[0].binding.name: "l2bridge" is not a network binding plugin of this installation, which has none; `,
		},
		"a gate that is shut": {
			"{}", "volumes: [{name: root, hostDisk: {path: /d/disk.img, type: Disk}}]",
			"spec.volumes[0].hostDisk: is not allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			allowed := AllowedBy(parse[v1.KubeVirtConfiguration](t, tc.configuration), "amd64")
			errs := allowed.Validate(&instance(t, tc.spec).Spec, field.NewPath("spec"))
			if got := Message(errs); tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) || len(errs) > 1 {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
