//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func firmware(b *v1.Bootloader) *v1.Firmware { return &v1.Firmware{Bootloader: b} }

func video(model string) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Video = &v1.VideoDevice{Type: model} }
}

// TestVariantsStart: libvirt and QEMU of the image accept what pkg/vm/domain makes of each field that has
// a say in whether a domain starts. They need not boot.
func TestVariantsStart(t *testing.T) {
	for name, change := range map[string]func(*v1.VirtualMachineInstance){
		"efi secure boot": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Firmware = firmware(&v1.Bootloader{EFI: &v1.EFI{}})
		},
		"bios on serial": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Firmware = firmware(&v1.Bootloader{BIOS: &v1.BIOS{UseSerial: new(true)}})
		},
		"i440fx": func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Machine.Type = "pc" },
		"topology and chassis": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 1, Threads: 2}
			vmi.Spec.Domain.Chassis = &v1.Chassis{Manufacturer: "m", Sku: "k"}
		},
		"named cpu with what TCG lacks": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &v1.CPU{
				Model: "Skylake-Server", Features: []v1.CPUFeature{{Name: "vmx"}, {Name: "aes", Policy: "disable"}},
			}
		},
		"host-passthrough": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &v1.CPU{Model: "host-passthrough"}
		},
		"tpm": func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{} },
		"watchdog and panic": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Watchdog = &v1.Watchdog{
				Name: "w", WatchdogDevice: v1.WatchdogDevice{I6300ESB: &v1.I6300ESBWatchdog{}},
			}
			vmi.Spec.Domain.Devices.PanicDevices = []v1.PanicDevice{{Model: new(v1.Pvpanic)}, {Model: new(v1.Isa)}}
		},
		"inputs": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Inputs = []v1.Input{
				{Name: "a", Type: v1.InputTypeTablet},
				{Name: "b", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio},
				{Name: "c", Type: v1.InputTypeKeyboard},
			}
		},
		"bare": func(vmi *v1.VirtualMachineInstance) {
			d := &vmi.Spec.Domain.Devices
			d.AutoattachGraphicsDevice, d.AutoattachSerialConsole, d.AutoattachMemBalloon = new(false), new(false),
				new(false)
			d.DisableHotplug, d.Interfaces, vmi.Spec.Networks = true, nil, nil
		},
		"hyperv panic and clock": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.PanicDevices = []v1.PanicDevice{{Model: new(v1.Hyperv)}}
			vmi.Spec.Domain.Clock = &v1.Clock{Timer: &v1.Timer{Hyperv: &v1.HypervTimer{}, KVM: &v1.KVMTimer{}}}
		},
		"video virtio": video("virtio"),
		"video bochs":  video("bochs"),
		"video cirrus": video("cirrus"),
		"video ramfb":  video("ramfb"),
		"buses": func(vmi *v1.VirtualMachineInstance) {
			for _, bus := range []v1.DiskBus{v1.DiskBusSATA, v1.DiskBusSCSI, v1.DiskBusUSB, v1.DiskBusVirtio} {
				n := "empty-" + string(bus)
				vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
					Name: n, Serial: "SN-" + string(bus), Cache: v1.CacheWriteBack, IO: v1.IOThreads,
					DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}},
					BlockSize:  &v1.BlockSize{Custom: &v1.CustomBlockSize{Logical: 512, Physical: 4096}},
				})
				vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{
					Name:         n,
					VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("10Mi")}},
				})
			}
			vmi.Spec.Domain.Devices.Disks[1].DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
		},
		"features and clock": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Features = &v1.Features{
				APIC: &v1.FeatureAPIC{}, SMM: &v1.FeatureState{}, KVM: &v1.FeatureKVM{Hidden: true},
			}
			vmi.Spec.Domain.Clock = &v1.Clock{
				ClockOffset: v1.ClockOffset{UTC: &v1.ClockOffsetUTC{OffsetSeconds: new(60)}},
				Timer: &v1.Timer{
					RTC: &v1.RTCTimer{TickPolicy: v1.RTCTickPolicyCatchup},
					PIT: &v1.PITTimer{TickPolicy: v1.PITTickPolicyDelay}, HPET: &v1.HPETTimer{Enabled: new(false)},
				},
			}
		},
		"no 64-bit hole": func(vmi *v1.VirtualMachineInstance) {
			vmi.Annotations = map[string]string{v1.DisablePCIHole64: "true"}
		},
		"no 64-bit hole on i440fx": func(vmi *v1.VirtualMachineInstance) {
			vmi.Annotations = map[string]string{v1.DisablePCIHole64: "true"}
			vmi.Spec.Domain.Machine.Type = "pc"
		},
		"transitional": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.UseVirtioTransitional = new(true)
			vmi.Spec.Domain.Devices.Inputs = []v1.Input{{Name: "a", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio}}
		},
		"network boot": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Interfaces[0].BootOrder = new(uint(1))
		},
		"e1000e": func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Interfaces[0].Model = "e1000e" },
		"link down": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Interfaces[0].State = v1.InterfaceStateLinkDown
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := tinyVMI("variant")
			change(vmi)
			p := newPod(t, vmi)
			r, err := p.start()
			if err != nil {
				t.Fatal(err)
			}
			if r.State.Lifecycle != pb.Lifecycle_LIFECYCLE_RUNNING {
				t.Errorf("%v", r.State)
			}
			p.shutdown(0)
			p.waitExit(10 * time.Second)
		})
	}
}

func TestBootUEFI(t *testing.T) {
	skipInShort(t)
	vmi := tinyVMI("uefi")
	vmi.Spec.Domain.Firmware = firmware(&v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(false)}})
	vmi.Spec.Domain.Memory.Guest = new(resource.MustParse("256Mi"))
	p := newPod(t, vmi)
	p.mustStart()
	p.shutdown(0)
	p.waitExit(10 * time.Second)
}

// withClaim gives the guest a disk on the claim shared by the pods.
func withClaim(name string) *v1.VirtualMachineInstance {
	vmi := tinyVMI(name)
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{
		Name: "data",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"},
		}},
	})
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")},
	}}}
	return vmi
}

func TestTwoGuestsOneClaim(t *testing.T) {
	claims := t.TempDir()
	for _, dir := range []string{claims, filepath.Join(claims, "data")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	first := newPodOnClaims(t, withClaim("first"), claims)
	if _, err := first.start(); err != nil {
		t.Fatal(err)
	}
	second := newPodOnClaims(t, withClaim("second"), claims)
	_, err := second.start()
	if status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(),
			`volume "data": PersistentVolumeClaim shared is in use by another virtual machine`) {
		t.Fatalf("the second start: %v", err)
	}
	// Once the first is gone, the second may have it.
	first.shutdown(0)
	first.waitExit(10 * time.Second)
	if _, err := second.start(); err != nil {
		t.Errorf("the second start, with the claim free: %v", err)
	}
	info, err := os.Stat(filepath.Join(claims, "data/disk.img"))
	if err != nil || info.Size() != 16<<20 {
		t.Errorf("%v, %v", info, err)
	}
}
