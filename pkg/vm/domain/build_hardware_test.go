package domain

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

func init() { maps.Copy(cases, hardwareCases) }

var virtio = v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}

// fourDisks are three virtio disks, of which one asks for an I/O thread of its own, and a scsi disk.
func fourDisks(vmi *v1.VirtualMachineInstance, f *Facts) {
	addDisk(vmi, f, v1.Disk{Name: "own", DiskDevice: virtio, DedicatedIOThread: new(true)}, claim, rawFile)
	addDisk(vmi, f, v1.Disk{Name: "slow", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}}, claim,
		rawFile)
}

func on() *v1.FeatureState  { return &v1.FeatureState{} }
func off() *v1.FeatureState { return &v1.FeatureState{Enabled: new(false)} }

// hardwareCases are of the devices and features that guests seldom have.
var hardwareCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"io-threads-dedicated": fourDisks,
	"io-threads-shared": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		fourDisks(vmi, f)
		vmi.Spec.Domain.IOThreadsPolicy = new(v1.IOThreadsPolicyShared)
		vmi.Spec.Domain.Devices.Disks[2].DedicatedIOThread = nil
	},
	"io-threads-auto": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		fourDisks(vmi, f)
		vmi.Spec.Domain.IOThreadsPolicy = new(v1.IOThreadsPolicyAuto)
		vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	},
	"io-threads-pool": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		fourDisks(vmi, f)
		vmi.Spec.Domain.IOThreadsPolicy = new(v1.IOThreadsPolicySupplementalPool)
		vmi.Spec.Domain.IOThreads = &v1.DiskIOThreads{SupplementalPoolThreadCount: new(uint32(2))}
	},
	"block-multi-queue": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		fourDisks(vmi, f)
		vmi.Spec.Domain.Devices.Disks[2].DedicatedIOThread = nil
		vmi.Spec.Domain.Devices.BlockMultiQueue = new(true)
		vmi.Spec.Domain.CPU = &v1.CPU{Cores: 4}
	},
	"network-multi-queue": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Cores: 2}
		f.Network.Interfaces[0].Queues = 2
	},
	"transitional": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		fourDisks(vmi, f)
		d := &vmi.Spec.Domain.Devices
		d.Disks[2].DedicatedIOThread = nil
		d.UseVirtioTransitional = new(true)
		d.Rng = &v1.Rng{}
		d.Inputs = []v1.Input{{Name: "a", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio}}
	},
	"disk-match-volume": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		disk0(vmi).BlockSize = &v1.BlockSize{MatchVolume: on()}
		src := f.Disks["root"]
		src.Blocks = &Blocks{Logical: 4096, Physical: 8192, Discard: 65536}
		f.Disks["root"] = src
	},
	"disk-pci-address": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		disk0(vmi).Disk.PciAddress = "0000:03:00.0"
	},
	"disk-tag": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		disk0(vmi).Tag = "system"
		vmi.Spec.Domain.Devices.Disks[1].Disk.PciAddress = "0000:01:00.0"
	},
	"interface-pci-address": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].PciAddress = "0000:0a:00.0"
	},
	"interface-acpi-index": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].ACPIIndex = 101
	},
	"interface-tag": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].Tag = "front"
	},
	"lun": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f, v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}}, claim,
			Source{Path: "/dev/virtkit-block/data", Block: true, Format: "raw", DirectIO: true})
	},
	"lun-readonly": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f,
			v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{Bus: v1.DiskBusSCSI, ReadOnly: true}}},
			claim, Source{Path: "/dev/virtkit-block/data", Block: true, Format: "raw", DirectIO: true})
	},
	"hyperv": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Features = &v1.Features{Hyperv: &v1.FeatureHyperv{
			Relaxed: on(), VAPIC: on(), Spinlocks: &v1.FeatureSpinlocks{Retries: new(uint32(8191))}, VPIndex: on(),
			Runtime: on(), SyNIC: on(),
			SyNICTimer: &v1.SyNICTimer{Direct: on()}, Reset: off(), VendorID: &v1.FeatureVendorID{VendorID: "KVM Hv"},
			Frequencies: on(), Reenlightenment: on(),
			TLBFlush: &v1.TLBFlush{Direct: on(), Extended: off()}, IPI: on(), EVMCS: off(),
		}}
	},
	"time-stamp-counter": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Features: []v1.CPUFeature{{Name: "invtsc", Policy: "require"}}}
		vmi.Status.TopologyHints = &v1.TopologyHints{TSCFrequency: new(int64(2_500_000_000))}
	},
	"hyperv-off": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Features = &v1.Features{Hyperv: &v1.FeatureHyperv{
			Spinlocks:  &v1.FeatureSpinlocks{FeatureState: *off()},
			VendorID:   &v1.FeatureVendorID{FeatureState: *off(), VendorID: "x"},
			SyNICTimer: &v1.SyNICTimer{FeatureState: *off()},
		}}
	},
	"hyperv-timer-without-clock": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Features = &v1.Features{
			Hyperv: &v1.FeatureHyperv{
				Spinlocks: &v1.FeatureSpinlocks{}, VPIndex: on(), SyNIC: on(), SyNICTimer: &v1.SyNICTimer{},
			},
		}
		vmi.Spec.Domain.Clock = &v1.Clock{Timer: &v1.Timer{Hyperv: &v1.HypervTimer{Enabled: new(false)}}}
	},
	"hyperv-passthrough": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Features = &v1.Features{HypervPassthrough: &v1.HyperVPassthrough{}}
	},
	"hyperv-emulated": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		f.KVM = false
		vmi.Spec.Domain.Features = &v1.Features{
			ACPI: *off(), Hyperv: &v1.FeatureHyperv{Relaxed: on()},
			HypervPassthrough: &v1.HyperVPassthrough{Enabled: new(false)},
		}
	},
	"acpi-tables": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		f.Secrets = "/secrets"
		vmi.Spec.Domain.Firmware.ACPI = &v1.ACPI{SlicNameRef: "licence", MsdmNameRef: "key"}
	},
	"sound": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Sound = &v1.SoundDevice{Name: "card"}
	},
	"sound-ac97": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Sound = &v1.SoundDevice{Name: "card", Model: "ac97"}
	},
	"client-passthrough": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		vmi.Spec.Domain.Devices.ClientPassthrough = &v1.ClientPassthroughDevices{}
		f.USBSockets = []string{"/run/usb0.sock", "/run/usb1.sock"}
	},
	"balloon-silent": func(_ *v1.VirtualMachineInstance, f *Facts) { f.Balloon = Balloon{KeepFreePages: true} },
}

func TestPlanThreads(t *testing.T) {
	spec := func(policy v1.IOThreadsPolicy, cpus string, shared, own int) *v1.VirtualMachineInstanceSpec {
		out := &v1.VirtualMachineInstanceSpec{}
		if policy != "" {
			out.Domain.IOThreadsPolicy = &policy
		}
		if cpus != "" {
			out.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		}
		for i := range shared + own {
			d := v1.Disk{Name: itoa(i), DiskDevice: virtio}
			if i >= shared {
				d.DedicatedIOThread = new(true)
			}
			out.Domain.Devices.Disks = append(out.Domain.Devices.Disks, d)
		}
		return out
	}
	for _, tc := range []struct {
		name          string
		spec          *v1.VirtualMachineInstanceSpec
		count, shared int
	}{
		{"nothing asked", spec("", "", 3, 0), 0, 0},
		{"one of its own", spec("", "", 3, 1), 2, 1},
		{"only of their own", spec("", "", 0, 2), 3, 1},
		{"shared", spec(v1.IOThreadsPolicyShared, "4", 5, 0), 1, 1},
		{"auto, enough for all", spec(v1.IOThreadsPolicyAuto, "4", 3, 1), 4, 1},
		{"auto, two a CPU", spec(v1.IOThreadsPolicyAuto, "1500m", 5, 1), 4, 1},
		{"auto, no request", spec(v1.IOThreadsPolicyAuto, "", 5, 0), 2, 1},
		{"auto, all taken", spec(v1.IOThreadsPolicyAuto, "1", 2, 4), 5, 1},
		{"auto, no disks", spec(v1.IOThreadsPolicyAuto, "1", 0, 0), 1, 1},
	} {
		got := planThreads(tc.spec)
		if int(got.count) != tc.count || len(got.shared) != tc.shared {
			t.Errorf("%s: %d threads, shared %v", tc.name, got.count, got.shared)
		}
		for name, ids := range got.of {
			for _, id := range ids {
				if id < 1 || id > got.count {
					t.Errorf("%s: disk %s on thread %d of %d", tc.name, name, id, got.count)
				}
			}
		}
	}
}

// TestHotpluggedTuning: a disk that is plugged in has what those that were there at the start have.
func TestHotpluggedTuning(t *testing.T) {
	vmi, _ := baseline()
	vmi.Spec.Domain.IOThreadsPolicy = new(v1.IOThreadsPolicyAuto)
	vmi.Spec.Domain.Devices.BlockMultiQueue = new(true)
	vmi.Spec.Domain.CPU = &v1.CPU{Cores: 2}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: "new", DiskDevice: virtio})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "new", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
	}})
	d, err := Hotplugged(vmi, "new", rawFile, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d.Driver.Queues == nil || *d.Driver.Queues != 2 || d.Driver.IOThread == nil || *d.Driver.IOThread != 1 {
		t.Errorf("driver %+v", d.Driver)
	}
	if own, err := Hotplugged(vmi, "new", rawFile, nil, FirstPluggedThread); err != nil ||
		*own.Driver.IOThread != FirstPluggedThread {
		t.Errorf("a thread of its own: %+v, %v", own, err)
	}
	for policy, want := range map[v1.IOThreadsPolicy]bool{
		v1.IOThreadsPolicyAuto:             true,
		v1.IOThreadsPolicySupplementalPool: false,
	} {
		vmi.Spec.Domain.IOThreadsPolicy = &policy
		disk := hotplug.Disk(&vmi.Spec, "new")
		if disk.DedicatedIOThread = nil; OwnThread(&vmi.Spec, "new") {
			t.Errorf("%s: a thread that nobody asked for", policy)
		}
		if disk.DedicatedIOThread = new(true); OwnThread(&vmi.Spec, "new") != want {
			t.Errorf("%s: a thread of its own: %v", policy, !want)
		}
	}
	vmi.Spec.Domain.IOThreadsPolicy = new(v1.IOThreadsPolicyAuto)
	if c := SCSIController(&vmi.Spec); c.Driver == nil || c.Driver.Queues == nil || c.Driver.IOThread != 1 {
		t.Errorf("controller %+v", c.Driver)
	}
}

func TestTaggedDevices(t *testing.T) {
	vmi, _ := baseline()
	devices := &vmi.Spec.Domain.Devices
	devices.Disks[0].Tag, devices.Disks[0].Serial = "system", "S1"
	devices.Disks[1].Tag, devices.Disks[1].Disk.Bus = "seed", v1.DiskBusSCSI
	devices.Interfaces = append(devices.Interfaces,
		v1.Interface{Name: "back", Model: "e1000", Tag: "back", MacAddress: "02:00:00:00:00:01"})
	devices.Interfaces[0].Tag = "front"
	got, err := TaggedDevices(vmi)
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct{ tag, bus, address string }{
		{"front", "pci", "0000:02:00.0"}, {"back", "pci", ""}, {"system", "pci", "0000:01:00.0"}, {"seed", "scsi", ""},
	} {
		address := ""
		if got[i].Address != nil {
			address = got[i].Address.String()
		}
		if got[i].Tag != want.tag || got[i].Bus != want.bus || address != want.address {
			t.Errorf("%+v at %s, want %+v", got[i], address, want)
		}
	}
	if got[0].MAC == "" || got[1].MAC != "02:00:00:00:00:01" || got[2].Serial != "S1" {
		t.Errorf("%+v", got)
	}
}
