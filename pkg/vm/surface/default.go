package surface

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// Defaults are the values that an installation's configuration gives (pkg/service/config). The zero value of
// a string means the built-in default.
type Defaults struct {
	// Architecture is amd64 unless set, MachineType q35.
	Architecture string
	MachineType  string
	// CPUModel is left to the launcher unless set.
	CPUModel string
	// LiveUpdate bounds how far running guests may grow that set no bounds themselves; nil means not at all
	// (vmRolloutStrategy Stage).
	LiveUpdate *sizing.Bounds
	// MemoryOvercommit is the guests' memory in percent of their pods' request for it; 0 means 100.
	MemoryOvercommit int
	// Bridge gives interfaces of the pod network that name no binding a bridge, in place of masquerade.
	Bridge bool
	// Allowed lists what guests may have.
	Allowed Allowed
	// References decides what becomes of a VM's instance type and preference; "" keeps them.
	References v1.InstancetypeReferencePolicy
	// Undecided says that a VM's preference, which may name architecture and machine type, is not there yet: they are
	// left to be filled in when it is.
	Undecided bool
	// NewUUID makes a firmware UUID for an object that has none; without it none is made.
	NewUUID func() string
}

func (d Defaults) architecture() string { return or(d.Architecture, "amd64") }
func (d Defaults) machineType() string  { return or(d.MachineType, DefaultMachineType) }

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// DefaultVirtualMachine fills in what a VirtualMachine must keep for its life, so that a later
// installation with other defaults does not change its guests: architecture, machine type and firmware
// UUID. What old (nil at creation) had of them stays when vm does not say. All else is filled
// in when a VMI is made.
func DefaultVirtualMachine(vm, old *v1.VirtualMachine, d Defaults) {
	if vm.Spec.Template == nil {
		return
	}
	spec := &vm.Spec.Template.Spec
	if old != nil && old.Spec.Template != nil {
		before := old.Spec.Template.Spec
		d.Architecture = or(before.Architecture, d.Architecture)
		if before.Domain.Machine != nil {
			d.MachineType = or(before.Domain.Machine.Type, d.MachineType)
		}
		if before.Domain.Firmware != nil && before.Domain.Firmware.UUID != "" {
			d.NewUUID = func() string { return string(before.Domain.Firmware.UUID) }
		}
	}
	defaultIdentity(spec, d)
}

// defaultIdentity fills in what distinguishes one VM from another.
func defaultIdentity(spec *v1.VirtualMachineInstanceSpec, d Defaults) {
	if !d.Undecided {
		defaultMachine(spec, d)
	}
	if d.NewUUID == nil {
		return
	}
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &v1.Firmware{}
	}
	if spec.Domain.Firmware.UUID == "" {
		spec.Domain.Firmware.UUID = types.UID(d.NewUUID())
	}
}

func defaultMachine(spec *v1.VirtualMachineInstanceSpec, d Defaults) {
	if spec.Architecture == "" {
		spec.Architecture = d.architecture()
	}
	if spec.Domain.Machine == nil {
		spec.Domain.Machine = &v1.Machine{}
	}
	if spec.Domain.Machine.Type == "" {
		spec.Domain.Machine.Type = d.machineType()
	}
}

// DefaultVirtualMachineInstance fills in everything that a new VMI leaves out, and its finalizer, so that its readers
// need no defaults of their own.
func DefaultVirtualMachineInstance(vmi *v1.VirtualMachineInstance, d Defaults) {
	if !slices.Contains(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer) {
		vmi.Finalizers = append(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer)
	}
	defaultSpec(&vmi.Spec, d)
}

func defaultSpec(spec *v1.VirtualMachineInstanceSpec, d Defaults) {
	defaultIdentity(spec, d)
	defaultCPU(&spec.Domain, d)
	defaultMemory(&spec.Domain)
	defaultMemoryRequest(&spec.Domain, d)
	if spec.Domain.Features == nil {
		spec.Domain.Features = &v1.Features{}
	}
	if spec.Domain.Features.ACPI.Enabled == nil {
		spec.Domain.Features.ACPI.Enabled = new(true)
	}
	defaultBounds(&spec.Domain, d)
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(life.DefaultGrace.Seconds()))
	}
	defaultHyperv(&spec.Domain)
	if sound := spec.Domain.Devices.Sound; sound != nil && sound.Model == "" {
		sound.Model = "ich9"
	}
	defaultProbe(spec.ReadinessProbe)
	defaultProbe(spec.LivenessProbe)
	Attach(spec)
	defaultDisks(spec)
	defaultInterfaces(spec, d)
	for i := range spec.Domain.Devices.Inputs {
		input := &spec.Domain.Devices.Inputs[i]
		if input.Bus == "" {
			input.Bus = v1.InputBusUSB
		}
		if input.Type == "" {
			input.Type = v1.InputTypeTablet
		}
	}
}

// defaultCPU makes the topology explicit. Without any, the vCPUs follow the CPU limit or request,
// rounded up, as sockets, which guests license and hotplug best.
func defaultCPU(domain *v1.DomainSpec, d Defaults) {
	if domain.CPU == nil {
		domain.CPU = &v1.CPU{}
	}
	cpu := domain.CPU
	if cpu.Model == "" {
		cpu.Model = d.CPUModel
	}
	if cpu.Cores == 0 && cpu.Sockets == 0 && cpu.Threads == 0 {
		quantity, ok := domain.Resources.Limits[corev1.ResourceCPU]
		if !ok {
			quantity = domain.Resources.Requests[corev1.ResourceCPU]
		}
		if n := quantity.Value(); n > 0 {
			cpu.Sockets = uint32(min(n, 1<<16)) // validation refuses far less
		}
	}
	for _, n := range []*uint32{&cpu.Cores, &cpu.Sockets, &cpu.Threads} {
		if *n == 0 {
			*n = 1
		}
	}
}

// defaultBounds sets how far the guest may grow.
func defaultBounds(domain *v1.DomainSpec, d Defaults) {
	if d.LiveUpdate == nil {
		return
	}
	if domain.CPU.MaxSockets == 0 {
		domain.CPU.MaxSockets = d.LiveUpdate.DefaultMaxSockets(domain)
	}
	if domain.Memory != nil && domain.Memory.MaxGuest == nil {
		if most := d.LiveUpdate.DefaultMaxGuest(domain); most > 0 {
			domain.Memory.MaxGuest = resource.NewQuantity(most, resource.BinarySI)
		}
	}
}

// defaultMemory gives the guest what the pod asks for when it does not say itself.
func defaultMemory(domain *v1.DomainSpec) {
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return
	}
	quantity, ok := sizing.Memory(domain)
	if !ok {
		return // validation asks for it
	}
	if domain.Memory == nil {
		domain.Memory = &v1.Memory{}
	}
	domain.Memory.Guest = new(quantity.DeepCopy())
}

// defaultMemoryRequest sets the pod's request for the guest's memory to what the pod would be given anyhow: clients of
// KubeVirt calculate with it, for one how large the claim of a memory dump must be. Where pods request less than their
// guests have by default, only the pod's plan knows how much, since that may be changed later.
func defaultMemoryRequest(domain *v1.DomainSpec, d Defaults) {
	overcommits := d.MemoryOvercommit > 0 && d.MemoryOvercommit != 100
	if _, given := domain.Resources.Requests[corev1.ResourceMemory]; given || domain.Memory == nil ||
		domain.Memory.Guest == nil || domain.Memory.Guest.Sign() <= 0 {
		return
	}
	dedicated := sizing.Dedicated(domain)
	small := sizing.PageSize(domain) == 0
	if overcommits && small && !dedicated {
		return
	}
	request := *domain.Memory.Guest
	if limit, limited := domain.Resources.Limits[corev1.ResourceMemory]; limited {
		switch {
		case dedicated:
			request = limit
		case limit.Cmp(request) < 0:
			return // validation refuses it
		}
	}
	if domain.Resources.Requests == nil {
		domain.Resources.Requests = corev1.ResourceList{}
	}
	domain.Resources.Requests[corev1.ResourceMemory] = request.DeepCopy()
}

// DefaultDisks gives each volume its disk, and each disk its defaults, as a new VMI of spec would have them.
func DefaultDisks(spec *v1.VirtualMachineInstanceSpec) {
	attachDisks(spec)
	defaultDisks(spec)
}

// defaultDisks gives each disk a device and a bus: sata, which every guest has a driver for, as
// KubeVirt does; scsi when it is plugged in while the guest runs.
func defaultDisks(spec *v1.VirtualMachineInstanceSpec) {
	disks, plugged := spec.Domain.Devices.Disks, hotplug.Names(spec)
	for i := range disks {
		bus := v1.DiskBusSATA
		if plugged[disks[i].Name] {
			bus = hotplug.DefaultBus
		}
		device := &disks[i].DiskDevice
		if device.Disk == nil && device.CDRom == nil && device.LUN == nil {
			device.Disk = &v1.DiskTarget{}
		}
		if device.Disk != nil && device.Disk.Bus == "" {
			device.Disk.Bus = bus
		}
		if device.LUN != nil && device.LUN.Bus == "" {
			device.LUN.Bus = v1.DiskBusSCSI // the one that has LUNs
		}
		if device.CDRom == nil {
			continue
		}
		if device.CDRom.Bus == "" {
			device.CDRom.Bus = v1.DiskBusSATA // its drive is there from the start
		}
		if device.CDRom.ReadOnly == nil {
			device.CDRom.ReadOnly = new(true)
		}
		if device.CDRom.Tray == "" {
			device.CDRom.Tray = v1.TrayStateClosed
		}
	}
}

// Attach adds what a guest has without listing it, without any settings: a disk for each volume that has none, a CD-ROM
// for sysprep's, where Windows looks; and the pod's network for a guest that names no network, unless it asks not to be
// connected.
func Attach(spec *v1.VirtualMachineInstanceSpec) {
	attachDisks(spec)
	devices := &spec.Domain.Devices
	if len(spec.Networks) == 0 && len(devices.Interfaces) == 0 &&
		(devices.AutoattachPodInterface == nil || *devices.AutoattachPodInterface) {
		spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
		devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
	}
	AttachInput(devices)
}

// AttachInput lists the input device that autoattachInputDevice asks for, where none is listed. Its bus and type are
// left to a preference or the defaults; KubeVirt's name.
func AttachInput(devices *v1.Devices) {
	if attach := devices.AutoattachInputDevice; attach != nil && *attach && len(devices.Inputs) == 0 {
		devices.Inputs = []v1.Input{{Name: "default-0"}}
	}
}

func attachDisks(spec *v1.VirtualMachineInstanceSpec) {
	devices := &spec.Domain.Devices
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.Name == "" || volume.MemoryDump != nil ||
			slices.ContainsFunc(devices.Disks, func(d v1.Disk) bool { return d.Name == volume.Name }) ||
			slices.ContainsFunc(devices.Filesystems, func(f v1.Filesystem) bool { return f.Name == volume.Name }) ||
			isTable(&spec.Domain, volume.Name) {
			continue
		}
		disk := v1.Disk{Name: volume.Name}
		if volume.Sysprep != nil {
			disk.CDRom = &v1.CDRomTarget{}
		}
		if volume.DownwardMetrics != nil { // is read-only, and there are no such sata disks
			disk.Disk = &v1.DiskTarget{Bus: v1.DiskBusVirtio}
		}
		devices.Disks = append(devices.Disks, disk)
	}
}

// defaultInterfaces gives each interface a binding (masquerade on the pod network, bridge on others), a model, and
// its ports a protocol.
func defaultInterfaces(spec *v1.VirtualMachineInstanceSpec, d Defaults) {
	multus := map[string]bool{}
	for i := range spec.Networks {
		multus[spec.Networks[i].Name] = spec.Networks[i].Multus != nil
	}
	interfaces := spec.Domain.Devices.Interfaces
	for i := range interfaces {
		nic := &interfaces[i]
		if nic.InterfaceBindingMethod == (v1.InterfaceBindingMethod{}) && nic.Binding == nil {
			if multus[nic.Name] || d.Bridge {
				nic.Bridge = &v1.InterfaceBridge{}
			} else {
				nic.Masquerade = &v1.InterfaceMasquerade{}
			}
		}
		if nic.Model == "" {
			nic.Model = v1.VirtIO
		}
		for j := range nic.Ports {
			if nic.Ports[j].Protocol == "" {
				nic.Ports[j].Protocol = string(corev1.ProtocolTCP)
			}
		}
	}
}
