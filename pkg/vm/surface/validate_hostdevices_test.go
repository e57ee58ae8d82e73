package surface

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidateHostDevices(t *testing.T) {
	const gpus, devices = "spec.domain.devices.gpus", "spec.domain.devices.hostDevices"
	for name, tc := range map[string]struct{ devices, want string }{
		"both":    {"gpus: [{name: a, deviceName: v/gpu}], hostDevices: [{name: b, deviceName: v.example/Dev_1}]", ""},
		"no name": {"gpus: [{deviceName: v/gpu}]", gpus + "[0].name: is not set"},
		"bad name": {
			"gpus: [{name: a.b, deviceName: v/gpu}]",
			gpus + `[0].name: "a.b" is not a device name; use letters, digits, - and _`,
		},
		"name twice": {
			"gpus: [{name: a, deviceName: v/gpu}], hostDevices: [{name: a, deviceName: v/b}]", devices + "[0].name",
		},
		"no device": {
			"hostDevices: [{name: a}]",
			devices +
				"[0].deviceName: is not set; name the resource of the device, " +
				"one of configuration.permittedHostDevices",
		},
		"no resource": {
			"hostDevices: [{name: a, deviceName: gpu}]",
			devices + `[0].deviceName: "gpu" is not the name of a resource such as vendor.com/device`,
		},
		"bad resource": {
			"hostDevices: [{name: a, deviceName: 'v/a b'}]",
			devices + `[0].deviceName: "v/a b" is not the name of a resource: `,
		},
		"Kubernetes' own": {
			"hostDevices: [{name: a, deviceName: requests.kubernetes.io/x}]",
			devices + `[0].deviceName: "requests.kubernetes.io/x" is Kubernetes' own`,
		},
		"display": {
			"gpus: [{name: a, deviceName: v/gpu, virtualGPUOptions: {display: {enabled: true, " +
				"ramFB: {enabled: false}}}}, {name: b, deviceName: v/gpu, virtualGPUOptions: {display: {}}}]",
			"",
		},
		"two framebuffers": {
			"gpus: [{name: a, deviceName: v/gpu, virtualGPUOptions: {display: {}}}, {name: b, deviceName: v/gpu, " +
				"virtualGPUOptions: {display: {ramFB: {}}}}]",
			gpus +
				`[1].virtualGPUOptions.display.ramFB: a guest has one such framebuffer, and GPU "a" has it; set ramFB.enabled: false`,
		},
		"display of headless": {
			"autoattachGraphicsDevice: false, gpus: [{name: a, deviceName: v/gpu, virtualGPUOptions: {display: {}}}]",
			gpus + "[0].virtualGPUOptions.display: needs a screen, and autoattachGraphicsDevice is false",
		},
		"no display": {
			"autoattachGraphicsDevice: false, gpus: [{name: a, deviceName: v/gpu, " +
				"virtualGPUOptions: {display: {enabled: false}}}]",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, "domain: {memory: {guest: 1Gi}, devices: {"+tc.devices+"}}")
			got := Message(validateHostDevices(&vmi.Spec.Domain.Devices, specPath.Child("domain", "devices")))
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestPermitted(t *testing.T) {
	const configuration = "permittedHostDevices: {pciHostDevices: [{pciVendorSelector: '10de:1eb8', " +
		"resourceName: v/gpu}], " +
		"mediatedDevices: [{mdevNameSelector: T4, resourceName: v/part}], usb: [{resourceName: v/key, " +
		"selectors: [{vendor: 046d, product: c52b}]}]}"
	const open = ", developerConfiguration: {featureGates: [HostDevices]}"
	for name, tc := range map[string]struct{ configuration, devices, want string }{
		"permitted": {
			configuration + open,
			"gpus: [{name: a, deviceName: v/gpu}, {name: b, deviceName: v/part}], " +
				"hostDevices: [{name: c, deviceName: v/key}]",
			"",
		},
		"another": {
			configuration + open, "hostDevices: [{name: a, deviceName: v/other}]",
			"spec.domain.devices.hostDevices[0].deviceName: HostDevice v/other is not permitted in " +
				"permittedHostDevices configuration; an administrator",
		},
		"another GPU": {
			configuration, "gpus: [{name: a, deviceName: v/other}]",
			"spec.domain.devices.gpus[0].deviceName: GPU v/other is not permitted in " +
				"permittedHostDevices configuration",
		},
		"none": {
			"machineType: q35", "gpus: [{name: a, deviceName: v/gpu}]",
			"spec.domain.devices.gpus[0].deviceName: GPU v/gpu is not permitted",
		},
		"gate": {
			configuration, "hostDevices: [{name: c, deviceName: v/key}]",
			"spec.domain.devices.hostDevices: is not allowed in this installation; " +
				"an administrator can add HostDevices",
		},
		"GPUs ungated":  {configuration, "gpus: [{name: a, deviceName: v/gpu}]", ""},
		"nobody's name": {configuration, "gpus: [{name: a}]", ""}, // validateHostDevices reports it
	} {
		t.Run(name, func(t *testing.T) {
			allowed := AllowedBy(parse[v1.KubeVirtConfiguration](t, "{"+tc.configuration+"}"), "amd64")
			errs := allowed.Validate(&instance(t, "domain: {devices: {"+tc.devices+"}}").Spec, field.NewPath("spec"))
			if got := Message(errs); tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestValidatePermittedDevices(t *testing.T) {
	for text, want := range map[string]string{
		"{pciHostDevices: [{pciVendorSelector: '10DE:1eb8', resourceName: v/gpu}, " +
			"{pciVendorSelector: '10DE:1eb9', resourceName: v/gpu}]}": "",
		"{pciHostDevices: [{pciVendorSelector: '10DE', " +
			"resourceName: " +
			"v/gpu}]}": `p.pciHostDevices[0].pciVendorSelector: "10DE" is not VENDOR:DEVICE of a PCI device`,
		"{pciHostDevices: [{pciVendorSelector: " +
			"'10DE:1eb8', " +
			"resourceName: gpu}]}": `p.pciHostDevices[0].resourceName: "gpu" is not the name of a resource`,
		"{mediatedDevices: [{resourceName: " +
			"v/gpu}]}": `p.mediatedDevices[0].mdevNameSelector: is not set`,
		"{usb: [{resourceName: v/gpu}]}":                                 `p.usb[0].selectors: is not set`,
		"{usb: [{resourceName: v/gpu, externalResourceProvider: true}]}": ``,
		"{usb: [{resourceName: v/gpu, selectors: " +
			"[{vendor: 46d, " +
			"product: xyz}]}]}": `p.usb[0].selectors[0].product: "xyz" is not the product of a USB device`,
		"{mediatedDevices: [{mdevNameSelector: a, resourceName: v/x}], usb: [{resourceName: v/x, " +
			"externalResourceProvider: true}]}": `p.usb[0].resourceName: v/x is a resource of mediatedDevices, too`,
	} {
		got := Message(validatePermittedDevices(parse[v1.PermittedHostDevices](t, text), field.NewPath("p")))
		if (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
