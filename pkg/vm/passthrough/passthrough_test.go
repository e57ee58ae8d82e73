package passthrough

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestResources(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	if VFIO(spec) || Resources(spec) != nil {
		t.Error("an instance without devices of its node has some")
	}
	spec.Domain.Devices.GPUs = []v1.GPU{{Name: "a", DeviceName: "x/gpu"}, {Name: "b", DeviceName: "x/gpu"}}
	spec.Domain.Devices.HostDevices = []v1.HostDevice{{Name: "c", DeviceName: "x/qat"}}
	if got, want := Resources(spec), map[string]int64{"x/gpu": 2, "x/qat": 1}; !VFIO(spec) || !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLocked(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	if got := Locked(spec); got != 2<<30+alignment {
		t.Errorf("by the request: %d", got)
	}
	spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("2Gi")), MaxGuest: new(resource.MustParse("8Gi"))}
	if got := Locked(spec); got != 9<<30+alignment {
		t.Errorf("of a guest that may grow: %d", got)
	}
}

func TestSRIOV(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	nic := v1.Interface{Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}}
	spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	if !SRIOV(spec) || !VFIO(spec) || !Locks(spec) || len(Resources(spec)) != 0 {
		t.Error("a function of a network card is none")
	}
	spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateAbsent
	if VFIO(spec) {
		t.Error("one that is absent is there")
	}
	got := Environment([]string{
		"PCIDEVICE_INTEL_COM_SRIOV=0000:3b:02.0", "KUBEVIRT_RESOURCE_NAME_red-1=intel.com/sriov", "KUBEVIRT_X=y",
	})
	if len(got) != 2 || got[Variable(NetworkPCI, "intel.com/sriov")] != "0000:3b:02.0" ||
		got[NetworkResource("red-1")] != "intel.com/sriov" {
		t.Errorf("environment %v", got)
	}
}

func TestVariables(t *testing.T) {
	if got := Variable(PCI, "nvidia.com/TU104GL-Tesla"); got != "PCI_RESOURCE_NVIDIA_COM_TU104GL-TESLA" {
		t.Error(got)
	}
	got := Environment([]string{
		"PATH=/bin", "PCI_RESOURCE_A_B=0000:01:00.0,", "USB_RESOURCE_X=1:2,1:3", "PCI_RESOURCES=x",
		"MDEV_PCI_RESOURCE_C=u",
	})
	if want := map[string]string{
		"PCI_RESOURCE_A_B":    "0000:01:00.0,",
		"USB_RESOURCE_X":      "1:2,1:3",
		"MDEV_PCI_RESOURCE_C": "u",
	}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if Environment([]string{"PATH=/bin"}) != nil {
		t.Error("an environment without devices has some")
	}
	if got := Devices("a,, b,"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("devices %v", got)
	}
}

func TestLocks(t *testing.T) {
	required, not := v1.MemLockRequirement(v1.MemLockRequired), v1.MemLockRequirement(v1.MemLockNotRequired)
	overhead := func(lock *v1.MemLockRequirement) *v1.VirtualMachineInstanceSpec {
		return &v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{Memory: &v1.Memory{ReservedOverhead: &v1.ReservedOverhead{
				AddedOverhead: resource.NewQuantity(1<<30, resource.BinarySI), MemLock: lock,
			}}},
		}
	}
	for name, c := range map[string]struct {
		spec *v1.VirtualMachineInstanceSpec
		want bool
	}{
		"nothing":      {&v1.VirtualMachineInstanceSpec{}, false},
		"not said":     {overhead(nil), false},
		"not required": {overhead(&not), false},
		"required":     {overhead(&required), true},
		"a device": {
			&v1.VirtualMachineInstanceSpec{
				Domain: v1.DomainSpec{Devices: v1.Devices{HostDevices: []v1.HostDevice{{}}}},
			},
			true,
		},
	} {
		if got := Locks(c.spec); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := Locked(overhead(&required)); got != 1<<30+MappedSpace+alignment {
		t.Errorf("with overhead %d", got)
	}
}
