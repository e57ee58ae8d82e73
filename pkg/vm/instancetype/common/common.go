// Package common has the instance types and preferences that people expect to find in a cluster: the names and sizes of
// KubeVirt's common-instancetypes (u1.medium, fedora, …), for the series and systems that virtkit can run.
// `virtctl install --instancetypes` applies them.
package common

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Labels by which instance types and preferences are found; KubeVirt's names.
const (
	labelVendor = "instancetype.kubevirt.io/vendor"
	labelClass  = "instancetype.kubevirt.io/class"
	labelCPU    = "instancetype.kubevirt.io/cpu"
	labelMemory = "instancetype.kubevirt.io/memory"
	labelOS     = "instancetype.kubevirt.io/os-type"
	annotation  = "instancetype.kubevirt.io/description"
	displayName = "instancetype.kubevirt.io/displayName"
	// vendor marks those of this package.
	vendor = "virtkit.io"
)

// size is vCPUs and memory of one member of a series.
type size struct {
	name   string
	vcpus  uint32
	memory string
}

// series are instance types that differ by size only.
type series struct {
	name, class, text string
	sizes             []size
	more              func(*v1beta1.VirtualMachineInstancetypeSpec)
}

var (
	universal = []size{
		{"nano", 1, "512Mi"},
		{"micro", 1, "1Gi"},
		{"small", 1, "2Gi"},
		{"medium", 1, "4Gi"},
		{"2xmedium", 2, "4Gi"},
		{"large", 2, "8Gi"},
		{"xlarge", 4, "16Gi"},
		{"2xlarge", 8, "32Gi"},
		{"4xlarge", 16, "64Gi"},
		{"8xlarge", 32, "128Gi"},
	}
	exclusive = []size{
		{"medium", 1, "2Gi"},
		{"large", 2, "4Gi"},
		{"xlarge", 4, "8Gi"},
		{"2xlarge", 8, "16Gi"},
		{"4xlarge", 16, "32Gi"},
		{"8xlarge", 32, "64Gi"},
	}
	intensive = []size{
		{"large", 2, "16Gi"},
		{"xlarge", 4, "32Gi"},
		{"2xlarge", 8, "64Gi"},
		{"4xlarge", 16, "128Gi"},
		{"8xlarge", 32, "256Gi"},
	}
)

var all = []series{
	{name: "u1", class: "general.purpose", text: "General purpose: shared CPUs, memory of its own.", sizes: universal},
	{
		name: "o1", class: "overcommitted", text: "Overcommitted: half of the memory is requested, for many VMs that " +
			"idle.", sizes: universal,
		more: func(spec *v1beta1.VirtualMachineInstancetypeSpec) { spec.Memory.OvercommitPercent = 50 },
	},
	{
		name: "cx1", class: "compute.exclusive", text: "Compute: CPUs of its own, laid out as the node's, and huge " +
			"pages.", sizes: exclusive,
		more: func(spec *v1beta1.VirtualMachineInstancetypeSpec) {
			spec.CPU.DedicatedCPUPlacement, spec.CPU.IsolateEmulatorThread = new(true), new(true)
			spec.CPU.NUMA = &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}}
			spec.IOThreadsPolicy = new(v1.IOThreadsPolicyAuto)
			spec.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
		},
	},
	{
		name: "m1", class: "memory.intensive", text: "Memory: eight times as many GiB as vCPUs, in huge pages.",
		sizes: intensive,
		more: func(spec *v1beta1.VirtualMachineInstancetypeSpec) {
			spec.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
		},
	},
}

// Instancetypes returns the instance types, series by series, smallest first.
func Instancetypes() []*v1beta1.VirtualMachineClusterInstancetype {
	var out []*v1beta1.VirtualMachineClusterInstancetype
	for _, s := range all {
		for _, size := range s.sizes {
			t := &v1beta1.VirtualMachineClusterInstancetype{
				TypeMeta: kind("VirtualMachineClusterInstancetype"),
				ObjectMeta: metav1.ObjectMeta{
					Name: s.name + "." + size.name,
					Labels: map[string]string{
						labelVendor: vendor, labelClass: s.class, labelCPU: strconv.Itoa(int(size.vcpus)),
						labelMemory: size.memory,
					},
					Annotations: map[string]string{annotation: s.text},
				},
			}
			t.Spec.CPU.Guest, t.Spec.Memory.Guest = size.vcpus, resource.MustParse(size.memory)
			if s.more != nil {
				s.more(&t.Spec)
			}
			out = append(out, t)
		}
	}
	return out
}

// system is a guest operating system: its name in a preference's, and the least that it runs with.
type system struct {
	name, title string
	vcpus       uint32
	memory      string
	// secured needs Secure Boot and a TPM.
	secured bool
}

var linux = []system{
	{"alpine", "Alpine Linux", 1, "512Mi", false},
	{"centos.stream10", "CentOS Stream 10", 1, "1536Mi", false},
	{"centos.stream9", "CentOS Stream 9", 1, "1536Mi", false},
	{"cirros", "CirrOS", 1, "256Mi", false},
	{"debian", "Debian", 1, "1Gi", false},
	{"fedora", "Fedora", 1, "2Gi", false},
	{"linux", "Linux", 1, "512Mi", false},
	{"opensuse.leap", "openSUSE Leap", 1, "2Gi", false},
	{"opensuse.tumbleweed", "openSUSE Tumbleweed", 1, "2Gi", false},
	{"rhel.10", "Red Hat Enterprise Linux 10", 1, "1536Mi", false},
	{"rhel.8", "Red Hat Enterprise Linux 8", 1, "1536Mi", false},
	{"rhel.9", "Red Hat Enterprise Linux 9", 1, "1536Mi", false},
	{"sles", "SUSE Linux Enterprise Server", 1, "1Gi", false},
	{"ubuntu", "Ubuntu", 1, "2Gi", false},
}

var windows = []system{
	{"windows.10", "Microsoft Windows 10", 1, "2Gi", false},
	{"windows.11", "Microsoft Windows 11", 2, "4Gi", true},
	{"windows.2k16", "Microsoft Windows Server 2016", 1, "512Mi", false},
	{"windows.2k19", "Microsoft Windows Server 2019", 1, "512Mi", false},
	{"windows.2k22", "Microsoft Windows Server 2022", 1, "512Mi", false},
	{"windows.2k25", "Microsoft Windows Server 2025", 1, "2Gi", true},
}

// Preferences returns the preferences: Linux, then Windows with its own drivers and, as NAME.virtio, with virtio's.
func Preferences() []*v1beta1.VirtualMachineClusterPreference {
	var out []*v1beta1.VirtualMachineClusterPreference
	for _, s := range linux {
		p := preference(s, s.name, s.title, "linux")
		paravirtual(p.Spec.Devices)
		out = append(out, p)
	}
	for _, s := range windows {
		own := preference(s, s.name, s.title, "windows")
		forWindows(&own.Spec, s)
		own.Spec.Devices.PreferredDiskBus, own.Spec.Devices.PreferredInterfaceModel = v1.DiskBusSATA, "e1000e"
		virtio := preference(s, s.name+".virtio", s.title+" (virtio)", "windows")
		forWindows(&virtio.Spec, s)
		paravirtual(virtio.Spec.Devices)
		out = append(out, own, virtio)
	}
	return out
}

func preference(s system, name, title, os string) *v1beta1.VirtualMachineClusterPreference {
	p := &v1beta1.VirtualMachineClusterPreference{
		TypeMeta: kind("VirtualMachineClusterPreference"),
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{labelVendor: vendor, labelOS: os},
			Annotations: map[string]string{displayName: title},
		},
	}
	p.Spec.Devices = &v1beta1.DevicePreferences{}
	p.Spec.Requirements = &v1beta1.PreferenceRequirements{
		CPU:    &v1beta1.CPUPreferenceRequirement{Guest: s.vcpus},
		Memory: &v1beta1.MemoryPreferenceRequirement{Guest: resource.MustParse(s.memory)},
	}
	return p
}

func paravirtual(devices *v1beta1.DevicePreferences) {
	devices.PreferredDiskBus, devices.PreferredInterfaceModel = v1.DiskBusVirtio, v1.VirtIO
	devices.PreferredRng = &v1.Rng{}
}

// forWindows sets what every Windows is better with: a clock that catches up, the Hyper-V enlightenments, a tablet, and
// sockets, for which it is licensed.
func forWindows(spec *v1beta1.VirtualMachinePreferenceSpec, s system) {
	on := func() *v1.FeatureState { return &v1.FeatureState{} }
	spec.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: new(v1beta1.Sockets)}
	spec.Clock = &v1beta1.ClockPreferences{
		PreferredClockOffset: &v1.ClockOffset{UTC: &v1.ClockOffsetUTC{}},
		PreferredTimer: &v1.Timer{
			HPET:   &v1.HPETTimer{Enabled: new(false)},
			PIT:    &v1.PITTimer{TickPolicy: v1.PITTickPolicyDelay},
			RTC:    &v1.RTCTimer{TickPolicy: v1.RTCTickPolicyCatchup},
			Hyperv: &v1.HypervTimer{},
		},
	}
	spec.Devices.PreferredInputBus, spec.Devices.PreferredInputType = v1.InputBusUSB, v1.InputTypeTablet
	spec.Devices.PreferredAutoattachInputDevice = new(true)
	spec.Devices.PreferredCdromBus = v1.DiskBusSATA
	spec.Features = &v1beta1.FeaturePreferences{
		PreferredAcpi: on(), PreferredApic: &v1.FeatureAPIC{}, PreferredSmm: on(),
		PreferredHyperv: &v1.FeatureHyperv{
			Relaxed: on(), VAPIC: on(), VPIndex: on(), SyNIC: on(), Runtime: on(), Reset: on(),
			Frequencies: on(), IPI: on(),
			TLBFlush:   &v1.TLBFlush{},
			SyNICTimer: &v1.SyNICTimer{Direct: on()}, Reenlightenment: on(),
			Spinlocks: &v1.FeatureSpinlocks{Retries: new(uint32(8191))},
		},
	}
	if s.secured {
		spec.Devices.PreferredTPM = &v1.TPMDevice{Persistent: new(true)}
		spec.Firmware = &v1beta1.FirmwarePreferences{
			PreferredEfi: &v1.EFI{SecureBoot: new(true), Persistent: new(true)},
		}
	}
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: name}
}
