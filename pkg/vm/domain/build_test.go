package domain

import (
	"flag"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

var update = flag.Bool("update", false, "write the golden files")

// baseline is a plain VM as admission leaves it, and its facts.
func baseline() (*v1.VirtualMachineInstance, *Facts) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "demo", UID: "6a1a24a1-4061-4607-8bf4-a3963d0c5895",
	}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: "11111111-2222-3333-4444-555555555555"}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		{Name: "seed", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "tiny"}}},
		{Name: "seed", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "x"}}},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}},
	}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	return vmi, &Facts{
		KVM:      true,
		Balloon:  Balloon{Period: 10},
		Emulator: "/usr/bin/qemu-system-x86_64",
		Firmware: Firmware{
			Code: "/fw/CODE.fd", Vars: "/fw/VARS.fd", SecureCode: "/fw/CODE.secure.fd",
			SecureVars: "/fw/VARS.secure.fd",
		},
		NVRAM:        "/run/nvram.fd",
		Ignition:     "/disks/.ignition.json",
		SerialSocket: "/run/serial0.sock", SerialLog: "/run/serial0.log",
		VNCSocket: "/run/vnc.sock", AgentSocket: "/run/agent.sock",
		Disks: map[string]Source{
			"root": {
				Path: "/disks/root.qcow2", Format: "qcow2", DirectIO: true,
				Backing: &Source{Path: "/containers/root/disk/a.qcow2", Format: "qcow2", ReadOnly: true},
			},
			"seed": {Path: "/disks/seed.iso", Format: "raw", DirectIO: true, ReadOnly: true},
		},
		Network: network.Plan{Interfaces: []network.Interface{{
			Name: "default", Tap: "tap0", BridgeLink: "k6t-eth0", MAC: "02:00:00:11:22:33", MTU: 1450,
			Gateway: netip.MustParsePrefix("10.0.2.1/24"), Guest: netip.MustParseAddr("10.0.2.2"),
		}}},
	}
}

// addDisk gives the VMI another disk on an image.
func addDisk(vmi *v1.VirtualMachineInstance, f *Facts, d v1.Disk, v v1.VolumeSource, src Source) {
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, d)
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: d.Name, VolumeSource: v})
	f.Disks[d.Name] = src
}

var claim = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}

// rawFile is a claim's image.
var rawFile = Source{Path: "/claims/data/disk.img", Format: "raw", DirectIO: true}

func disk0(vmi *v1.VirtualMachineInstance) *v1.Disk { return &vmi.Spec.Domain.Devices.Disks[0] }

// cases has one case a supported field; each has a golden file.
var cases = together(baseCases, sizingCases)

func together(all ...map[string]func(*v1.VirtualMachineInstance, *Facts),
) map[string]func(*v1.VirtualMachineInstance, *Facts) {
	out := map[string]func(*v1.VirtualMachineInstance, *Facts){}
	for _, some := range all {
		maps.Copy(out, some)
	}
	return out
}

var baseCases = map[string]func(*v1.VirtualMachineInstance, *Facts){
	"baseline":      func(*v1.VirtualMachineInstance, *Facts) {},
	"emulated":      func(_ *v1.VirtualMachineInstance, f *Facts) { f.KVM = false },
	"uuid-from-vmi": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Firmware = nil },
	"smbios": func(_ *v1.VirtualMachineInstance, f *Facts) {
		f.SMBIOS = v1.SMBiosConfiguration{
			Manufacturer: "Acme", Product: "Cloud", Version: "7", Sku: "a-1", Family: "Virtual",
		}
	},
	"ignition": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Annotations = map[string]string{v1.IgnitionAnnotation: "{}"}
	},
	"firmware-serial": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Firmware.Serial = "serial-7" },
	"machine-q35-named": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Machine = &v1.Machine{Type: "pc-q35-9.2"}
	},
	"pci-hole": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Annotations = map[string]string{v1.DisablePCIHole64: "true"}
	},
	"pci-hole-i440fx": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Annotations = map[string]string{v1.DisablePCIHole64: "true"}
		vmi.Spec.Domain.Machine = &v1.Machine{Type: "pc"}
	},
	"pci-hole-no-hotplug": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Annotations = map[string]string{v1.DisablePCIHole64: "true"}
		vmi.Spec.Domain.Devices.DisableHotplug = true
	},
	"machine-i440fx": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Machine = &v1.Machine{Type: "pc"}
	},
	"bios-serial": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Firmware.Bootloader = &v1.Bootloader{BIOS: &v1.BIOS{UseSerial: new(true)}}
	},
	"efi": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Firmware.Bootloader = &v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(false)}}
	},
	"efi-secure-boot": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Firmware.Bootloader = &v1.Bootloader{EFI: &v1.EFI{}}
	},
	"chassis": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Chassis = &v1.Chassis{Manufacturer: "m", Version: "v", Serial: "s", Asset: "a", Sku: "k"}
	},
	"cpu-topology": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 3, Threads: 2}
	},
	"cpu-cores-only": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.CPU = &v1.CPU{Cores: 4} },
	"cpu-from-limit": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
		vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	},
	"cpu-from-request": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	},
	"cpu-model": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.CPU = &v1.CPU{Model: "Haswell"} },
	"cpu-host-passthrough": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Model: "host-passthrough"}
	},
	"cpu-features": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.CPU = &v1.CPU{Features: []v1.CPUFeature{{Name: "vmx"}, {Name: "apic", Policy: "disable"}}}
	},
	"cpu-model-emulated": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		f.KVM = false
		vmi.Spec.Domain.CPU = &v1.CPU{Model: "Haswell", Features: []v1.CPUFeature{{Name: "vmx"}}}
	},
	"memory-from-request": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Memory = nil
		vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1G")}
	},
	"memory-from-limit": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Memory = nil
		vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	},
	"features": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Features = &v1.Features{
			ACPI: v1.FeatureState{Enabled: new(false)}, APIC: &v1.FeatureAPIC{EndOfInterrupt: true},
			SMM: &v1.FeatureState{}, KVM: &v1.FeatureKVM{Hidden: true},
			Pvspinlock: &v1.FeatureState{Enabled: new(false)},
		}
	},
	"features-emulated": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		f.KVM = false
		vmi.Spec.Domain.Features = &v1.Features{
			APIC: &v1.FeatureAPIC{FeatureState: v1.FeatureState{Enabled: new(false)}},
			KVM:  &v1.FeatureKVM{Hidden: true}, Pvspinlock: &v1.FeatureState{},
		}
	},
	"clock-timezone": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Clock = &v1.Clock{
			ClockOffset: v1.ClockOffset{Timezone: new(v1.ClockOffsetTimezone("Europe/Paris"))},
		}
	},
	"clock-utc": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{UTC: &v1.ClockOffsetUTC{}}}
	},
	"clock-offset-timers": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Clock = &v1.Clock{
			ClockOffset: v1.ClockOffset{UTC: &v1.ClockOffsetUTC{OffsetSeconds: new(-3600)}},
			Timer: &v1.Timer{
				RTC:  &v1.RTCTimer{TickPolicy: v1.RTCTickPolicyCatchup, Track: v1.TrackWall},
				PIT:  &v1.PITTimer{TickPolicy: v1.PITTickPolicyDelay},
				HPET: &v1.HPETTimer{Enabled: new(false)}, KVM: &v1.KVMTimer{}, Hyperv: &v1.HypervTimer{},
			},
		}
	},
	"reboot-policy": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.RebootPolicy = new(v1.RebootPolicyTerminate)
	},
	"no-serial": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachSerialConsole = new(false)
	},
	"no-graphics": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
	},
	"video": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Video = &v1.VideoDevice{Type: "virtio"}
	},
	"no-balloon": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachMemBalloon = new(false)
	},
	"autoattach-input": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.AutoattachInputDevice = new(true)
	},
	"inputs": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Inputs = []v1.Input{
			{Name: "a", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio},
			{Name: "b", Type: v1.InputTypeKeyboard},
		}
	},
	"rng": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Devices.Rng = &v1.Rng{} },
	"watchdog": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Watchdog = &v1.Watchdog{
			Name:           "dog",
			WatchdogDevice: v1.WatchdogDevice{I6300ESB: &v1.I6300ESBWatchdog{Action: v1.WatchdogActionPoweroff}},
		}
	},
	"tpm": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{} },
	"tpm-persistent": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	},
	"panic": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.PanicDevices = []v1.PanicDevice{{Model: new(v1.Isa)}}
	},
	"disable-hotplug": func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Devices.DisableHotplug = true },
	"interface-model": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].Model = "e1000e"
	},
	"interface-boot-order": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].BootOrder = new(uint(1))
	},
	"interface-link-down": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateLinkDown
	},
	"interface-absent": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateAbsent
	},
	"disk-sata":      func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Disk.Bus = v1.DiskBusSATA },
	"disk-scsi":      func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Disk.Bus = v1.DiskBusSCSI },
	"disk-usb":       func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Disk.Bus = v1.DiskBusUSB },
	"disk-serial":    func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Serial = "SN0001" },
	"disk-cache":     func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Cache = v1.CacheWriteBack },
	"disk-io":        func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).IO = v1.IOThreads },
	"disk-shareable": func(vmi *v1.VirtualMachineInstance, _ *Facts) { disk0(vmi).Shareable = new(true) },
	"disk-boot-order": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		vmi.Spec.Domain.Devices.Disks[1].BootOrder = new(uint(1))
	},
	"disk-error-policy": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		disk0(vmi).ErrorPolicy = new(v1.DiskErrorPolicyReport)
	},
	"disk-block-size": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
		disk0(vmi).BlockSize = &v1.BlockSize{
			Custom: &v1.CustomBlockSize{Logical: 4096, Physical: 4096, DiscardGranularity: new(uint(4096))},
		}
	},
	"disk-no-direct-io": func(_ *v1.VirtualMachineInstance, f *Facts) {
		src := f.Disks["root"]
		src.DirectIO = false
		f.Disks["root"] = src
	},
	"disk-raw-backing": func(_ *v1.VirtualMachineInstance, f *Facts) {
		src := f.Disks["root"]
		src.Backing = &Source{Path: "/containers/root/disk/a.img", Format: "raw"}
		f.Disks["root"] = src
	},
	"disk-readonly": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f,
			v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI, ReadOnly: true}}},
			claim, rawFile)
	},
	"claim-file": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f, v1.Disk{Name: "data"}, claim, rawFile)
	},
	"claim-block": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f, v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}, claim,
			Source{Path: "/dev/virtkit-block/data", Block: true, Format: "raw", DirectIO: true})
	},
	"empty-disk": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f,
			v1.Disk{Name: "scratch", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
			v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}},
			Source{Path: "/disks/scratch.qcow2", Format: "qcow2", DirectIO: true})
	},
	"cdrom": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f, v1.Disk{Name: "iso", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, claim,
			Source{Path: "/claims/iso/disk.img", Format: "raw"})
	},
	"cdrom-tray-scsi": func(vmi *v1.VirtualMachineInstance, f *Facts) {
		addDisk(vmi, f,
			v1.Disk{
				Name:       "iso",
				DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI, Tray: v1.TrayStateOpen}},
			}, claim, Source{Path: "/claims/iso/disk.img", Format: "raw"})
	},
}

func TestBuild(t *testing.T) {
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			vmi, facts := baseline()
			change(vmi, facts)
			d, err := Build(vmi, *facts)
			if err != nil {
				t.Fatal(err)
			}
			xml, err := d.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".xml", xml+"\n")
		})
	}
}

// TestEveryCaseDiffers: a field without effect would be ignored silently.
func TestEveryCaseDiffers(t *testing.T) {
	seen := map[string]string{}
	for name := range cases {
		b, err := os.ReadFile(filepath.Join("testdata", name+".xml"))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[string(b)]; ok {
			t.Errorf("%s and %s give the same domain", name, other)
		}
		seen[string(b)] = name
	}
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(cases) {
		t.Errorf("testdata has %d files for %d cases", len(files), len(cases))
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1.VirtualMachineInstance, *Facts)
		want   string
	}{
		{
			"no memory", func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Domain.Memory = nil },
			"spec.domain.memory.guest: the guest's memory is not set",
		},
		{
			"no volume", func(vmi *v1.VirtualMachineInstance, _ *Facts) { vmi.Spec.Volumes = nil },
			`spec.domain.devices.disks[0]: no volume is named "root"`,
		},
		{
			"no image", func(_ *v1.VirtualMachineInstance, f *Facts) { delete(f.Disks, "seed") },
			`spec.domain.devices.disks[1]: volume "seed" has no image`,
		},
		{"lun", func(vmi *v1.VirtualMachineInstance, _ *Facts) {
			disk0(vmi).DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}}
		}, "disks[0].lun: the guest's SCSI commands go to the volume's device, and it has none"},
		{"read-only sata", func(vmi *v1.VirtualMachineInstance, _ *Facts) {
			disk0(vmi).Disk = &v1.DiskTarget{Bus: v1.DiskBusSATA, ReadOnly: true}
		}, "a sata disk cannot be read-only"},
		{"virtio cdrom", func(vmi *v1.VirtualMachineInstance, _ *Facts) {
			disk0(vmi).DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusVirtio}}
		}, "virtio has no CD-ROMs"},
		{
			"no plan", func(_ *v1.VirtualMachineInstance, f *Facts) { f.Network.Interfaces = nil },
			`interface "default" is not in the network plan`,
		},
		{"no firmware", func(vmi *v1.VirtualMachineInstance, f *Facts) {
			f.Firmware = Firmware{}
			vmi.Spec.Domain.Firmware.Bootloader = &v1.Bootloader{EFI: &v1.EFI{}}
		}, "has no UEFI firmware"},
		{"s390 watchdog", func(vmi *v1.VirtualMachineInstance, _ *Facts) {
			vmi.Spec.Domain.Devices.Watchdog = &v1.Watchdog{
				WatchdogDevice: v1.WatchdogDevice{Diag288: &v1.Diag288Watchdog{}},
			}
		}, "only i6300esb exists"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vmi, facts := baseline()
			tc.change(vmi, facts)
			_, err := Build(vmi, *facts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	var spec v1.VirtualMachineInstanceSpec
	for name, bus := range map[string]v1.DiskBus{"a": v1.DiskBusSATA} {
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
			v1.Disk{Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: bus}}})
	}
	for range 28 {
		n := string(rune('A' + len(spec.Domain.Devices.Disks)))
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: n})
	}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		v1.Disk{Name: "z", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
	got := Targets(&spec)
	for name, want := range map[string]string{
		"a":                    "sda",
		"B":                    "vda",
		string(rune('A' + 27)): "vdaa",
		string(rune('A' + 28)): "vdab",
		"z":                    "sdb",
	} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}
