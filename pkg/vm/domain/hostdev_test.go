package domain

import (
	"maps"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func init() { maps.Copy(cases, hostdevCases) }

const mdevUUID = "f3e5c1a0-2f5d-4a43-9a3c-0a6c7c8d9e01"

func gpu(name, resource string, display *v1.VGPUDisplayOptions) v1.GPU {
	g := v1.GPU{Name: name, DeviceName: resource}
	if display != nil {
		g.VirtualGPUOptions = &v1.VGPUOptions{Display: display}
	}
	return g
}

// hostdevCases are of devices of the node.
var hostdevCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"hostdev-pci": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		d := &vmi.Spec.Domain.Devices
		d.GPUs = []v1.GPU{gpu("gpu1", "vendor.com/GPU", nil), gpu("gpu2", "vendor.com/GPU", nil)}
		d.HostDevices = []v1.HostDevice{{Name: "qat", DeviceName: "intel.com/qat"}}
		f.PluginVariables = map[string]string{
			"PCI_RESOURCE_VENDOR_COM_GPU": "0000:81:00.0,0000:82:00.0,", "PCI_RESOURCE_INTEL_COM_QAT": "0000:3d:01.2",
			"PCI_RESOURCE_OTHER": "0000:01:00.0",
		}
	},
	"hostdev-mdev": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		d := &vmi.Spec.Domain.Devices
		d.GPUs = []v1.GPU{gpu("vgpu", "vendor.com/vGPU", nil)}
		d.HostDevices = []v1.HostDevice{{Name: "part", DeviceName: "vendor.com/part"}}
		f.PluginVariables = map[string]string{
			"MDEV_PCI_RESOURCE_VENDOR_COM_VGPU": mdevUUID,
			"MDEV_PCI_RESOURCE_VENDOR_COM_PART": "f3e5c1a0-2f5d-4a43-9a3c-0a6c7c8d9e02",
		}
	},
	"hostdev-mdev-display": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.Devices.GPUs = []v1.GPU{
			gpu("plain", "v/x", nil), gpu("off", "v/x", &v1.VGPUDisplayOptions{Enabled: new(false)}),
			gpu("screen", "v/x", &v1.VGPUDisplayOptions{RamFB: off()}), gpu("both", "v/x", &v1.VGPUDisplayOptions{}),
		}
		f.PluginVariables = map[string]string{"MDEV_PCI_RESOURCE_V_X": strings.Repeat(mdevUUID+",", 4)}
	},
	"hostdev-mdev-no-graphics": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
		vmi.Spec.Domain.Devices.GPUs = []v1.GPU{gpu("vgpu", "v/x", nil)}
		f.PluginVariables = map[string]string{"MDEV_PCI_RESOURCE_V_X": mdevUUID}
	},
	"vsock": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true)
		vmi.Status.VSOCKCID = new(uint32(4294967294))
	},
	"vsock-transitional": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true)
		vmi.Spec.Domain.Devices.UseVirtioTransitional = new(true)
		vmi.Status.VSOCKCID = new(uint32(3))
	},
	"hostdev-usb": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.Devices.HostDevices = []v1.HostDevice{
			{Name: "keys", DeviceName: "kubevirt.io/keys"},
			{Name: "more", DeviceName: "kubevirt.io/keys"},
		}
		f.PluginVariables = map[string]string{"USB_RESOURCE_KUBEVIRT_IO_KEYS": "1:4,1:5,3:10,3:11"}
	},
}

func TestNoCID(t *testing.T) {
	vmi, facts := baseline()
	vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true)
	if _, err := Build(vmi, *facts); err == nil ||
		!strings.Contains(err.Error(), "autoattachVSOCK: virt-controller has given the guest no CID") {
		t.Errorf("got %v", err)
	}
}

func TestHostdevErrors(t *testing.T) {
	for name, tc := range map[string]struct{ variable, value, want string }{
		"nothing": {
			"PATH", "/bin",
			"spec.domain.devices.hostDevices[0]: the device plugin of resource v/x has not said which device " +
				"the pod got: none of the variables PCI_RESOURCE_V_X,",
		},
		"too few": {
			"PCI_RESOURCE_V_X", "0000:01:00.0",
			"spec.domain.devices.hostDevices[0]: the device plugin gave the pod 1 devices of " +
				"resource v/x, and 2 are needed",
		},
		"no address": {
			"PCI_RESOURCE_V_X", "1,2", `spec.domain.devices.hostDevices[0]: PCI_RESOURCE_V_X: "1" is not a PCI address`,
		},
		"no UUID":       {"MDEV_PCI_RESOURCE_V_X", "../../x,y", `MDEV_PCI_RESOURCE_V_X: "../../x" is not the UUID`},
		"no USB device": {"USB_RESOURCE_V_X", "1-4,2-2", `USB_RESOURCE_V_X: "1-4" is not the BUS:DEVICE`},
	} {
		t.Run(name, func(t *testing.T) {
			vmi, facts := baseline()
			vmi.Spec.Domain.Devices.HostDevices = []v1.HostDevice{
				{Name: "a", DeviceName: "v/x"},
				{Name: "b", DeviceName: "v/x"},
			}
			facts.PluginVariables = map[string]string{tc.variable: tc.value}
			if _, err := Build(vmi, *facts); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
