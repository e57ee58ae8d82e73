package migrationcontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// ReasonDisksBrought is the event of a VM that names new claims, or its old ones again, because of a migration.
const ReasonDisksBrought = "DisksBrought"

// Disks is what is known for a migration that brings disks (pkg/vm/volumemigration: WithDisksAnnotation):
//
//	Pending    its status names a claim for each disk ─► the claims are made, and their UIDs are there, too ─► the VM
//	           names them, with a Record of what it named ─► the VMI does, and says what is copied
//	           (pkg/controller/volumemigrationcontroller) ─► Scheduling, as any migration
//	Succeeded  the Record goes
//	Failed     the VM names the old claims again, and the Record goes ─► the VMI does ─► the new claims are deleted
//
// Each arrow is a write, and what follows is decided by what is read: no step rests on memory.
type Disks struct {
	// VM is the guest's; nil when it is gone, or there is none.
	VM *v1.VirtualMachine
	// Claims are by name those of the namespace; when the migration is over, those that it says it has made.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Pods are by claim pods that use one that was made for the migration; known when the migration is over.
	Pods map[string]string
	// Staged says that no guest that runs follows its VM's spec.
	Staged bool
}

// brought is what a Step does about disks.
type brought struct {
	// MakeClaims are claims to make, and DropClaims some to delete.
	MakeClaims, DropClaims []*corev1.PersistentVolumeClaim
	// PatchVM is a patch of the VM; empty leaves it. Said is the event of it.
	PatchVM []volumemigration.Operation
	Said    string
	// Copied is what the migration is to say of what it copies; nil leaves it.
	Copied []volumemigration.Copied
	// Release takes the finalizer of the disks away.
	Release bool
}

// bringing reports a migration whose VM names new claims because of it: what its VMI and the node say of that comes
// later.
func bringing(view View) bool {
	if view.Disks == nil {
		return false
	}
	record := volumemigration.RecordOf(view.Disks.VM)
	return record != nil && record.Migration == view.Migration.UID
}

// bring readies a VMI's disks to go with the guest, a step at a time. It reports whether they are ready.
func (s *Step) bring(view View) (ready bool) {
	d := view.Disks
	if d == nil {
		return true
	}
	if bringing(view) {
		return s.awaitBrought(view, volumemigration.RecordOf(d.VM))
	}
	volumes := volumemigration.Bring(view.VMI).Volumes
	if len(volumes) == 0 { // all are on storage that both nodes reach, or are copied as it is
		return true
	}
	switch {
	case d.VM == nil || d.VM.DeletionTimestamp != nil:
		s.fail(view, "VirtualMachine "+view.VMI.Name+" was deleted")
	case d.Staged:
		s.fail(view, "vmRolloutStrategy of the KubeVirt resource is Stage, by which no guest that runs changes, and "+
			"no disk is copied")
	case volumemigration.RecordOf(d.VM) != nil:
		s.phase(v1.MigrationPending, view.Now)
		s.RequeueAfter = waitAgain // another's end is not tidied up yet
	default:
		s.exchange(view, volumes)
	}
	return false
}

// exchange makes the claims, and has the VM name them once all are there.
func (s *Step) exchange(view View, volumes []string) {
	vm := view.Disks.VM
	plan, err := volumemigration.Copies(view.Migration, view.VMI, volumes, view.Disks.Claims)
	if err != nil {
		s.fail(view, err.Error())
		return
	}
	var list []volumemigration.Exchanged
	for _, volume := range volumes {
		list = append(list, volumemigration.Exchanged{Volume: volume, To: plan.To(volume)})
	}
	wait, refused := judge(vm, view.VMI, list)
	switch {
	case refused != "":
		s.fail(view, refused)
	case wait:
		s.phase(v1.MigrationPending, view.Now)
		s.RequeueAfter = waitAgain
	case !slices.Equal(plan.Made, volumemigration.MadeBy(&s.Status)):
		s.phase(v1.MigrationPending, view.Now)
		s.RequeueAfter, s.Failed = waitShortly, volumemigration.SetMade(&s.Status, plan.Made, view.Now)
	case len(plan.Missing) > 0:
		s.phase(v1.MigrationPending, view.Now)
		s.MakeClaims, s.RequeueAfter = owned(vm, plan.Missing), waitShortly
	default:
		ops, err := volumemigration.Recorded(vm, view.VMI, view.Migration.UID, list, metav1.NewTime(view.Now))
		if err != nil {
			s.Failed = err
			return
		}
		s.phase(v1.MigrationPending, view.Now)
		s.PatchVM, s.RequeueAfter = ops, waitShortly
		s.Said = "The VM names new claims, to which migration " + view.Migration.Name + " copies its disks"
	}
}

// owned has the claims belong to a VM that take the place of a DataVolume of its templates: it was to be deleted with
// the VM.
func owned(vm *v1.VirtualMachine, made []*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	for _, claim := range made {
		v := hotplug.Volume(&vm.Spec.Template.Spec, claim.Labels[volumemigration.CopiedVolumeLabel])
		if v == nil || v.DataVolume == nil || !slices.ContainsFunc(vm.Spec.DataVolumeTemplates,
			func(t v1.DataVolumeTemplateSpec) bool { return t.Name == v.DataVolume.Name }) {
			continue
		}
		kind := v1.VirtualMachineGroupVersionKind
		claim.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: vm.Name, UID: vm.UID,
		}}
	}
	return made
}

// judge says what would come of a VM that names other claims, by the rules for it.
func judge(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, list []volumemigration.Exchanged,
) (wait bool, refused string) {
	if vm.Spec.Template == nil {
		return false, "the VM has no template"
	}
	template := vm.Spec.Template.Spec.DeepCopy()
	for _, e := range list {
		at := slices.IndexFunc(template.Volumes, func(v v1.Volume) bool { return v.Name == e.Volume })
		now := volumemigration.InUse(&vmi.Status, e.Volume)
		switch {
		case at < 0:
			return false, fmt.Sprintf("volume %q is the instance's alone, and the VM does not name it", e.Volume)
		case claims.Name(&template.Volumes[at]) != now:
			return false, fmt.Sprintf("volume %q: the guest uses claim %s, and the VM names %s for its next start; "+
				"restart the VM, or name the claim again", e.Volume, now, claims.Name(&template.Volumes[at]))
		}
		template.Volumes[at] = *hotplug.On(&template.Volumes[at], e.To)
	}
	strategy := v1.UpdateVolumesStrategyMigration
	decision := volumemigration.Follow(&strategy, template, vmi)
	for _, e := range list {
		if why := decision.Refused["volumes["+e.Volume+"]"]; why != "" {
			return false, fmt.Sprintf("volume %q cannot be copied: %s", e.Volume, why)
		}
	}
	return decision.Volumes == nil, ""
}

// awaitBrought waits until a VMI has taken over what its VM names, and its node lets the guest go.
func (s *Step) awaitBrought(view View, record *volumemigration.Record) (ready bool) {
	vmi := view.VMI
	if !record.Named(view.Disks.VM) {
		s.fail(view, "the volumes of the VM were changed meanwhile")
		return false
	}
	if len(volumemigration.CopiedBy(view.Migration)) == 0 {
		s.Copied = record.Copied()
	}
	var why string
	switch waiting := volumemigration.Waiting(vmi); {
	case waiting != nil:
		why = waiting.Message
	case !record.UnderWay(vmi):
		why = "the VirtualMachineInstance has not taken the new claims over"
	case !volumemigration.Described(vmi):
		why = "virt-controller has not said what is copied"
	case volumemigration.Refusal(vmi) != "":
		why = volumemigration.Refusal(vmi)
	case !migrations.Migratable(vmi):
		why = "the guest's node has not said whether the guest can move"
	default:
		return true
	}
	if left := prepareTimeout - view.Now.Sub(record.At.Time); left <= 0 {
		s.fail(view, fmt.Sprintf("its disks could not be copied within %s: %s", prepareTimeout, why))
		return false
	}
	s.phase(v1.MigrationPending, view.Now)
	s.RequeueAfter = waitShortly
	return false
}

// settleDisks has the VM and the claims become what the end of the migration makes of them.
func (s *Step) settleDisks(view View) {
	m, d := view.Migration, view.Disks
	if d == nil || !slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer) {
		return
	}
	begun := !since(&s.Status, v1.MigrationTargetReady).IsZero()
	landed := m.Status.Phase == v1.MigrationSucceeded
	if bringing(view) {
		record := volumemigration.RecordOf(d.VM)
		s.RequeueAfter = waitShortly
		if landed || record.Landed(d.VM, view.VMI, begun) {
			s.PatchVM = record.Settle(d.VM)
			return
		}
		s.PatchVM = record.Undo(d.VM)
		s.Said = "The VM names again the claims that it had, since migration " + m.Name + " has failed"
		return
	}
	if landed || d.VM == nil && view.VMI == nil && begun {
		s.Release = true // in the second case nobody knows; the claims may have the data
		return
	}
	s.dropCopies(view)
	s.Release = s.RequeueAfter == 0
}

// dropCopies chooses the claims to delete that a migration has made for nothing. A claim whose UID was not written is
// deleted only once it is.
func (s *Step) dropCopies(view View) {
	d, all := view.Disks, volumemigration.MadeBy(&s.Status)
	written := true
	for i := range all {
		made, claim := &all[i], d.Claims[all[i].Claim]
		switch {
		case made.Unrecorded(view.Migration, claim):
			made.UID, written = claim.UID, false
		case !made.Is(claim), claim.DeletionTimestamp != nil: // another's, or gone
		case named(d.VM, claim.Name), in(view.VMI, claim.Name): // it is the guest's, or was its last
		case wanted(view.VMI, claim.Name), d.Pods[claim.Name] != "":
			s.RequeueAfter = waitShortly
		default:
			s.DropClaims = append(s.DropClaims, claim)
		}
	}
	if !written {
		s.RequeueAfter, s.Failed = waitShortly, volumemigration.SetMade(&s.Status, all, view.Now)
	}
}

// named reports whether a VM, which may be nil, has a claim as a volume.
func named(vm *v1.VirtualMachine, claim string) bool {
	return vm != nil && vm.Spec.Template != nil && has(vm.Spec.Template.Spec.Volumes, claim)
}

// in reports whether the guest of a VMI, which may be nil, uses a claim, or used it when it ended.
func in(vmi *v1.VirtualMachineInstance, claim string) bool {
	return vmi != nil && slices.ContainsFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool {
		return volumemigration.InUse(&vmi.Status, s.Name) == claim
	})
}

// wanted reports whether a VMI, which may be nil, names a claim, or says that it is being copied to.
func wanted(vmi *v1.VirtualMachineInstance, claim string) bool {
	return life.Alive(vmi) && (has(vmi.Spec.Volumes, claim) ||
		slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m v1.StorageMigratedVolumeInfo) bool {
			return m.DestinationPVCInfo != nil && m.DestinationPVCInfo.ClaimName == claim
		}))
}

func has(volumes []v1.Volume, claim string) bool {
	return slices.ContainsFunc(volumes, func(v v1.Volume) bool { return claims.Name(&v) == claim })
}
