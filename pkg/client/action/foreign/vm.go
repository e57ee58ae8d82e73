package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Wish is how the VM is to be made.
type Wish struct {
	backup.Wish
	// Networks say where interfaces are connected to, by the networks that the file names; that of "" is for all
	// others.
	Networks map[string]string
	// DiskBus is the bus of all disks, Firmware efi or bios, CPUs and Memory the size of the guest; empty is as in the
	// file.
	DiskBus, Firmware string
	CPUs              uint32
	Memory            *resource.Quantity
}

// The words of Networks and Firmware.
const (
	NetworkPod   = "pod"
	NetworkNone  = "none"
	FirmwareEFI  = "efi"
	FirmwareBIOS = "bios"
)

// Make returns what the file becomes. It asks nobody.
func (f *File) Make(wish Wish) (*backup.Made, error) {
	vm, said, err := f.Machine.VM(wish)
	if err != nil {
		return nil, err
	}
	id, err := f.id()
	if err != nil {
		return nil, err
	}
	out := &backup.Made{VM: vm, NotIncluded: said, Needs: backup.Needs(vm)}
	for i, disk := range f.Machine.withClaims() {
		name := backup.ClaimName(vm.Name, disk.volume)
		out.Claims = append(out.Claims, wish.Claim(name, f.images[i].needs(), id, vm.Name))
	}
	return out, nil
}

// VM returns the VM for a machine, and what of the machine it has not, or has otherwise.
func (m *Machine) VM(wish Wish) (*v1.VirtualMachine, []string, error) {
	name := cmp.Or(wish.Name, nameOf(m.Name))
	if name == "" {
		return nil, nil, &WishError{fmt.Sprintf("its name, %q, is no name of a VM; give one with --name", m.Name)}
	}
	said := slices.Clone(m.Absent)
	if wish.Name == "" && name != m.Name {
		said = append(said, fmt.Sprintf("its name %q: the VM is called %s", m.Name, name))
	}
	strategy := v1.RunStrategyHalted
	if wish.Start {
		strategy = v1.RunStrategyAlways
	}
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: exports.KindVM},
		ObjectMeta: metav1.ObjectMeta{Namespace: wish.Namespace, Name: name},
		Spec:       v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
	guest := &vm.Spec.Template.Spec
	said = append(said, m.processor(guest, wish)...)
	m.firmware(guest, wish)
	m.devices(guest)
	said = append(said, m.disks(guest, wish, name)...)
	more, err := m.networks(guest, wish)
	return vm, append(said, more...), err
}

// WishError is a wish that the file does not allow.
type WishError struct{ text string }

func (e *WishError) Error() string { return e.text }

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// nameOf returns a VM's name for what another hypervisor calls it; empty for what has no letter or digit.
func nameOf(text string) string {
	return names.Shorten(strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-"),
		validation.DNS1123LabelMaxLength)
}

// processor gives a guest CPUs, memory and a clock.
func (m *Machine) processor(guest *v1.VirtualMachineInstanceSpec, wish Wish) (said []string) {
	cpu := v1.CPU{Sockets: m.CPU.Sockets, Cores: m.CPU.Cores, Threads: m.CPU.Threads, Model: m.CPU.Model}
	switch {
	case wish.CPUs > 0:
		cpu.Sockets, cpu.Cores, cpu.Threads = wish.CPUs, 1, 1
	case cpu.Sockets == 0:
		cpu.Sockets, cpu.Cores, cpu.Threads = 1, 1, 1
		said = append(said, "how many CPUs it has, which it does not say: the VM has 1, unless --cpu is given")
	}
	guest.Domain.CPU = &cpu
	memory := resource.NewQuantity(m.Memory, resource.BinarySI)
	switch {
	case wish.Memory != nil:
		memory = wish.Memory
	case m.Memory == 0:
		memory = resource.NewQuantity(imageMemory, resource.BinarySI)
		said = append(said, "how much memory it has, which it does not say: the VM has 2Gi, unless --memory is given")
	}
	guest.Domain.Memory = &v1.Memory{Guest: memory}
	if m.Timezone != "" {
		zone := v1.ClockOffsetTimezone(m.Timezone)
		guest.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{Timezone: &zone}}
	}
	return said
}

// firmware gives a guest its firmware.
func (m *Machine) firmware(guest *v1.VirtualMachineInstanceSpec, wish Wish) {
	efi, secure := m.EFI, m.SecureBoot
	if wish.Firmware != "" {
		efi = wish.Firmware == FirmwareEFI
		secure = secure && efi
	}
	firmware := &v1.Firmware{}
	if efi {
		firmware.Bootloader = &v1.Bootloader{EFI: &v1.EFI{SecureBoot: &secure}}
	}
	if secure {
		guest.Domain.Features = &v1.Features{SMM: &v1.FeatureState{Enabled: &secure}}
	}
	if wish.KeepIdentity {
		firmware.UUID = types.UID(m.UUID)
	}
	if *firmware != (v1.Firmware{}) {
		guest.Domain.Firmware = firmware
	}
}

// devices gives a guest what is neither a disk nor an interface.
func (m *Machine) devices(guest *v1.VirtualMachineInstanceSpec) {
	devices := &guest.Domain.Devices
	if m.Sound != "" {
		devices.Sound = &v1.SoundDevice{Name: "sound", Model: m.Sound}
	}
	if m.Watchdog != "" {
		devices.Watchdog = &v1.Watchdog{Name: "watchdog", WatchdogDevice: v1.WatchdogDevice{
			I6300ESB: &v1.I6300ESBWatchdog{Action: v1.WatchdogAction(m.Watchdog)},
		}}
	}
	if m.RNG {
		devices.Rng = &v1.Rng{}
	}
	if m.Tablet {
		devices.Inputs = []v1.Input{{Name: "tablet", Type: v1.InputTypeTablet, Bus: v1.InputBusUSB}}
	}
	if m.TPM {
		devices.TPM = &v1.TPMDevice{}
	}
}

// disks gives a guest its disks, each with a claim that is its own, and CD drives, which may be empty.
func (m *Machine) disks(guest *v1.VirtualMachineInstanceSpec, wish Wish, vm string) (said []string) {
	if m.TPM {
		said = append(said, "what is in its TPM: the VM has an empty one, which forgets when it stops")
	}
	taken := map[uint]bool{}
	for i := range m.Disks {
		disk := &m.Disks[i]
		out := v1.Disk{Name: disk.volume, Serial: disk.Serial}
		bus := disk.Bus
		switch {
		case disk.CDROM:
			out.CDRom = &v1.CDRomTarget{Bus: bus}
		default:
			if wish.DiskBus != "" {
				bus = v1.DiskBus(wish.DiskBus)
			} else if disk.Was != "" {
				said = append(said, fmt.Sprintf("the controller of %s (%s): it is on %s, unless --disk-bus is given",
					disk.volume, disk.Was, bus))
			}
			out.Disk = &v1.DiskTarget{Bus: bus}
		}
		if disk.Boot > 0 && !taken[disk.Boot] {
			taken[disk.Boot] = true
			out.BootOrder = &disk.Boot
		}
		guest.Domain.Devices.Disks = append(guest.Domain.Devices.Disks, out)
		if disk.CDROM && disk.File == "" {
			continue
		}
		guest.Volumes = append(guest.Volumes, v1.Volume{Name: disk.volume, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{
					ClaimName: backup.ClaimName(vm, disk.volume),
				},
			},
		}})
	}
	return said
}

// networks gives a guest its interfaces: one in the pod's network, others in those that the user names.
func (m *Machine) networks(guest *v1.VirtualMachineInstanceSpec, wish Wish) (said []string, err error) {
	pod := false
	used := map[string]bool{}
	taken := map[uint]bool{}
	for i := range m.Disks {
		taken[m.Disks[i].Boot] = true
	}
	for i := range m.NICs {
		nic := &m.NICs[i]
		to, named := wish.Networks[nic.Network]
		if used[nic.Network] = true; !named {
			to, named = wish.Networks[""]
		}
		what := fmt.Sprintf("interface %d (network %q, %s)", i+1, nic.Network, cmp.Or(nic.MAC, "no MAC address"))
		switch {
		case to == NetworkNone:
			said = append(said, what+": left out, as --network says")
			continue
		case pod && !named:
			said = append(said, fmt.Sprintf("%s: a VM is in its pod's network once; connect it to another with "+
				"--network %q", what, nic.Network+"=DEFINITION"))
			continue
		case pod && to == NetworkPod:
			said = append(said, what+": a VM is in its pod's network once")
			continue
		}
		if nic.Was != "" {
			said = append(said, fmt.Sprintf("the model of interface %d (%s): it is %s", i+1, nic.Was, nic.Model))
		}
		out := v1.Interface{Name: fmt.Sprintf("net%d", i+1), Model: nic.Model}
		network := v1.Network{Name: out.Name}
		if to == "" || to == NetworkPod {
			pod = true
			out.Name, network.Name = "default", "default"
			out.Masquerade, network.Pod = &v1.InterfaceMasquerade{}, &v1.PodNetwork{}
		} else {
			out.Bridge, network.Multus = &v1.InterfaceBridge{}, &v1.MultusNetwork{NetworkName: to}
		}
		if wish.KeepIdentity {
			out.MacAddress = nic.MAC
		}
		if nic.Boot > 0 && !taken[nic.Boot] {
			taken[nic.Boot] = true
			out.BootOrder = &nic.Boot
		}
		guest.Domain.Devices.Interfaces = append(guest.Domain.Devices.Interfaces, out)
		guest.Networks = append(guest.Networks, network)
	}
	if len(guest.Networks) == 0 {
		no := false
		guest.Domain.Devices.AutoattachPodInterface = &no
	}
	for _, source := range slices.Sorted(maps.Keys(wish.Networks)) {
		if source != "" && !used[source] {
			return nil, &WishError{fmt.Sprintf("--network: there is no interface in a network %q; there are %s", source,
				cmp.Or(quoted(slices.Sorted(maps.Keys(used))), "none"))}
		}
	}
	return said, nil
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = strconv.Quote(word)
	}
	return strings.Join(out, ", ")
}
