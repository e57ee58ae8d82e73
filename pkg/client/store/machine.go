package store

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Machine is one virtual machine: a VirtualMachine with its instance, if it has one, or an instance that belongs to no
// VirtualMachine. Strings are as shown; empty means unknown or not there.
type Machine struct {
	Namespace, Name string
	// Instance is whether there is no VirtualMachine.
	Instance bool
	// Status is the VM's printableStatus or the instance's phase.
	Status string
	Ready  bool
	// RunStrategy is empty for an instance.
	RunStrategy string
	Created     time.Time
	Labels      map[string]string
	// Deleting is whether it is on its way out.
	Deleting bool
	// Revision is another after each change of one of its objects.
	Revision string
	// ObjectUID is the VM's, or that of an instance without one.
	ObjectUID types.UID
	// Owner is the pool or replica set that made it; empty without one.
	Owner types.UID
	// Claims are the claims that its volumes are on.
	Claims []string
	// Resumes is the claim with the saved memory that the guest goes on from at the next start; empty for a VM that
	// boots.
	Resumes string

	// Phase is the instance's, empty without one; UID too. What follows is of the instance.
	Phase v1.VirtualMachineInstancePhase
	UID   types.UID
	Node  string
	IPs   []string
	// CPUs is the number of virtual CPUs, Memory what the guest sees; 0 where an instance type says it and no guest is
	// there.
	CPUs    uint32
	Memory  resource.Quantity
	GuestOS string

	Paused, Agent, Migratable, Migrating, Evacuating bool
	// OnlyWithDisks says that the guest cannot move as it is, and can with its disks.
	OnlyWithDisks bool
	// CopiesDisks says that the guest's disks are copied to the claims that the VM names when it moves.
	CopiesDisks bool
	// Again is why virt-controller migrates the guest anew when its migration is cancelled, AgainUpdate why when that
	// is an update: clauses, empty when nothing is known.
	Again, AgainUpdate string
	// RestartRequired says that the guest lacks changes of the VM until its next start.
	RestartRequired bool
	// Saving says that a snapshot or a restore of the VM is under way; empty when none is.
	Saving string
	// Trouble is the message of the condition that says best why it is not ready; empty when nothing is wrong.
	Trouble string
}

// Key returns the machine's namespace and name.
func (m *Machine) Key() Key { return Key{Namespace: m.Namespace, Name: m.Name} }

// Alive reports whether a guest is there or about to be.
func (m *Machine) Alive() bool {
	return m.Phase != "" && m.Phase != v1.Succeeded && m.Phase != v1.Failed
}

// IP returns the first address.
func (m *Machine) IP() string {
	if len(m.IPs) == 0 {
		return ""
	}
	return m.IPs[0]
}

// Compare orders machines by namespace and name.
func Compare(a, b *Machine) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareKey(m *Machine, key Key) int {
	return cmp.Or(strings.Compare(m.Namespace, key.Namespace), strings.Compare(m.Name, key.Name))
}

// part is what one of the two objects knows of a machine.
type part struct {
	Machine
	// owned is whether the instance belongs to a VM.
	owned bool
}

// join makes the machine of its parts, either of which may be nil; nil if neither is there. The instance counts only
// when it belongs to the VM.
func join(vm, vmi *part) *Machine {
	switch {
	case vm == nil && vmi == nil:
		return nil
	case vm == nil:
		m := vmi.Machine
		m.Instance, m.ObjectUID = true, m.UID
		m.Status = ownStatus(&m)
		return &m
	case vmi == nil || !vmi.owned:
		m := vm.Machine
		return &m
	}
	m := vmi.Machine
	m.Status, m.Ready, m.RunStrategy, m.Created, m.Labels = vm.Status, vm.Ready, vm.RunStrategy, vm.Created, vm.Labels
	m.Deleting, m.Revision, m.Owner = vm.Deleting, vm.Revision+"/"+vmi.Revision, vm.Owner
	m.ObjectUID, m.Claims, m.Resumes = vm.ObjectUID, vm.Claims, vm.Resumes
	m.Trouble, m.Saving, m.RestartRequired = cmp.Or(vm.Trouble, vmi.Trouble), vm.Saving, vm.RestartRequired
	return &m
}

// ownStatus returns the status of an instance without a VM, in the words that a VM would have for it.
func ownStatus(m *Machine) string {
	switch {
	case m.Deleting:
		return string(v1.VirtualMachineStatusTerminating)
	case m.Phase != v1.Running:
		return m.Status
	case m.Migrating:
		return string(v1.VirtualMachineStatusMigrating)
	case m.Paused:
		return string(v1.VirtualMachineStatusPaused)
	}
	return m.Status
}

func ofVM(vm *v1.VirtualMachine) *part {
	p := &part{Machine: Machine{
		Namespace: vm.Namespace, Name: vm.Name, Status: string(vm.Status.PrintableStatus), Ready: vm.Status.Ready,
		Created: vm.CreationTimestamp.Time, Labels: vm.Labels, Deleting: vm.DeletionTimestamp != nil,
		Revision: vm.ResourceVersion, Owner: ownerOf(vm), ObjectUID: vm.UID,
	}}
	p.CPUs, p.Memory = SizeOf(vm)
	if vm.Spec.Template != nil {
		p.Claims = claimsOf(vm.Spec.Template.Spec.Volumes)
	}
	if mark := savedmemory.Pending(vm); mark != nil {
		p.Resumes = mark.Claim
	}
	if _, held := snapshots.SnapshotOf(vm); held {
		p.Saving = "snapshot under way"
	}
	if snapshots.Restoring(vm) {
		p.Saving = "restore under way"
	}
	if strategy, err := vm.RunStrategy(); err == nil {
		p.RunStrategy = string(strategy)
	}
	for _, c := range vm.Status.Conditions {
		switch is := c.Status == corev1.ConditionTrue; {
		case c.Type == v1.VirtualMachineFailure && is:
			p.Trouble = c.Message
		case c.Type == v1.VirtualMachineRestartRequired:
			p.RestartRequired = is
		}
	}
	return p
}

func ofVMI(vmi *v1.VirtualMachineInstance) *part {
	p := &part{owned: Owned(vmi), Machine: Machine{
		Namespace: vmi.Namespace, Name: vmi.Name, Status: string(vmi.Status.Phase), Phase: vmi.Status.Phase,
		UID:  vmi.UID,
		Node: vmi.Status.NodeName, Created: vmi.CreationTimestamp.Time, Labels: vmi.Labels,
		Deleting: vmi.DeletionTimestamp != nil,
		GuestOS:  GuestOS(vmi.Status.GuestOSInfo), Evacuating: vmi.Status.EvacuationNodeName != "",
		Revision: vmi.ResourceVersion,
	}}
	if !p.owned {
		p.Owner = ownerOf(vmi)
	}
	p.CPUs, p.Memory = uint32(sizing.VCPUs(&vmi.Spec.Domain)), sizing.Current(vmi)
	p.Migrating = migrations.UnderWay(vmi)
	if !p.owned {
		p.Claims = claimsOf(vmi.Spec.Volumes)
	}
	for _, c := range vmi.Status.Conditions {
		is := c.Status == corev1.ConditionTrue
		switch c.Type {
		case v1.VirtualMachineInstanceReady:
			p.Ready = is
		case v1.VirtualMachineInstancePaused:
			p.Paused = is
		case v1.VirtualMachineInstanceAgentConnected:
			p.Agent = is
		case v1.VirtualMachineInstanceIsMigratable:
			p.Migratable = is
		case v1.VirtualMachineInstanceSynchronized:
			if c.Status == corev1.ConditionFalse {
				p.Trouble = c.Message
			}
		}
	}
	p.OnlyWithDisks = volumemigration.OnlyWithDisks(vmi)
	p.CopiesDisks = len(volumemigration.Moves(vmi)) > 0
	p.Again, p.AgainUpdate = migrations.Again(vmi, false), migrations.Again(vmi, true)
	p.IPs = Addresses(vmi)
	return p
}

// claimsOf returns the claims of volumes, those of DataVolumes too.
func claimsOf(volumes []v1.Volume) []string {
	var out []string
	for i := range volumes {
		switch v := &volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.DataVolume != nil:
			out = append(out, v.DataVolume.Name)
		}
	}
	return out
}

// Addresses returns all that an instance's interfaces have.
func Addresses(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for _, i := range vmi.Status.Interfaces {
		switch {
		case len(i.IPs) > 0:
			out = append(out, i.IPs...)
		case i.IP != "":
			out = append(out, i.IP)
		}
	}
	return out
}

// ownerOf returns the UID of an object's controller.
func ownerOf(o metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return owner.UID
	}
	return ""
}

// Owned reports whether an instance belongs to a VM.
func Owned(vmi *v1.VirtualMachineInstance) bool {
	owner := metav1.GetControllerOf(vmi)
	return owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind
}

// GuestOS returns the name of a guest's system by its agent.
func GuestOS(info v1.VirtualMachineInstanceGuestOSInfo) string {
	if info.PrettyName != "" {
		return info.PrettyName
	}
	return strings.TrimSpace(info.Name + " " + info.VersionID)
}

// SizeOf returns the size of a VM as it says it itself: zero where its instance type does.
func SizeOf(vm *v1.VirtualMachine) (uint32, resource.Quantity) {
	if vm.Spec.Template == nil {
		return 0, resource.Quantity{}
	}
	cpus, memory := Size(&vm.Spec.Template.Spec.Domain)
	if vm.Spec.Instancetype != nil && vm.Spec.Template.Spec.Domain.CPU == nil {
		cpus = 0
	}
	return cpus, memory
}

// Size returns the number of CPUs, one where nothing is said, and the memory that a domain's guest sees.
func Size(d *v1.DomainSpec) (uint32, resource.Quantity) {
	memory, _ := sizing.Memory(d) // zero when an instance type is to say it
	return uint32(sizing.VCPUs(d)), memory
}
