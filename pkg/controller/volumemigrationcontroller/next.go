// Package volumemigrationcontroller has the disks of a running guest copied to other claims: its VMI's spec names
// claims that the guest does not use (pkg/controller/vmcontroller wrote them). Inputs are the VMI, the claims and the
// VMI's migrations; outputs are status.migratedVolumes of the VMI, its condition VolumesChange, and a migration, in
// which the guest's node copies the disks (pkg/vm/volumemigration has the whole way):
//
//	spec ≠ guest ──► migratedVolumes, VolumesChange ──► a migration, again with pauses when it fails ──► spec = guest
//	spec = guest, migratedVolumes ──► the migration is cancelled ──► migratedVolumes go, VolumesChange is False
//	spec = guest, VolumesChange   ──► VolumesChange is False: nothing had begun
//	spec = guest, claims that it has left ──► these are deleted, where the VM or their class wants that (left.go)
//
// The core is pure: Next (this file) decides what to do; the Reconciler (reconciler.go) reads, asks, and writes.
package volumemigrationcontroller

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Reasons of the condition while it is True.
const (
	reasonWaiting = volumemigration.ReasonWaiting
	reasonCopying = volumemigration.ReasonCopying
)

// again is the delay before the next look at what sends no event.
const again = 5 * time.Second

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Claims are those that exist of the claims that the VMI names, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// DataVolumes are by name those that fill one of the claims to which a disk is to be copied; nil for one that is
	// not there. Empty where the cluster has no DataVolumes.
	DataVolumes map[string]*cdiv1.DataVolume
	// Users are other pods than the VMI's own that use such a claim, by the claim's name.
	Users map[string]string
	// Sources are the claims from which disks are to be copied, by name, before status.migratedVolumes has them.
	Sources map[string]*corev1.PersistentVolumeClaim
	// VM is the VMI's, and Left the claims that its guest has left, by UID: known once nothing is being copied. Seen is
	// what the last look came to.
	VM   *v1.VirtualMachine
	Left map[types.UID]LeftClaim
	Seen map[types.UID]Verdict
	// Migrations are all of the VMI.
	Migrations []*v1.VirtualMachineInstanceMigration
	// Settled says that all components are up to date: an older virt-handler would send the guest without its disks.
	Settled bool
	Now     time.Time
}

// Step holds what to write; a Step that is zero but for Status writes nothing else.
type Step struct {
	// Cancel are migrations to delete.
	Cancel []*v1.VirtualMachineInstanceMigration
	// Migrate is the name of a migration to make; "" means none.
	Migrate string
	// Mark are claims that are to say that the guest leaves them, before the status does.
	Mark []*corev1.PersistentVolumeClaim
	// Delete are claims, or their DataVolumes, that the guest has left, and Seen is what this look came to of others.
	Delete []client.Object
	Seen   map[types.UID]Verdict
	// Events are those of the VMI, and Failed is what the step ends with.
	Events []notice
	Failed error
	// Status is the VMI's status as it should be.
	Status v1.VirtualMachineInstanceStatus
	frame.Requeue
}

// notice is an event of a VMI.
type notice struct{ kind, reason, message string }

// Next decides.
func Next(view View) Step {
	vmi := view.VMI
	step := Step{Status: *vmi.Status.DeepCopy()}
	switch {
	case volumemigration.Unsaid(vmi):
		step.reverted(view)
	case !life.Running(vmi):
	case leaving(vmi):
		step.clear(view)
	case !volumemigration.Pending(vmi):
	case len(vmi.Status.MigratedVolumes) > 0 && !volumemigration.Described(vmi):
		step.goBack(view)
	case migrations.UnderWay(vmi): // Its end is an event.
	default:
		step.copy(view)
	}
	return step
}

// leaving reports a VMI whose guest runs on the claims that its spec names, after it has left others.
func leaving(vmi *v1.VirtualMachineInstance) bool {
	return len(volumemigration.LeftBy(&vmi.Status)) > 0 && life.Running(vmi) && !volumemigration.Pending(vmi) &&
		!migrations.UnderWay(vmi)
}

// goBack ends the migrations that would copy to claims which the spec does not name any more, and forgets these claims
// once none is left. What such a migration has copied until then is of no use; one that has ended with the guest at
// the new claims has taken migratedVolumes with it.
func (s *Step) goBack(view View) {
	for _, m := range view.Migrations {
		_, ours := m.Labels[v1.VolumesUpdateMigration]
		if m.IsFinal() || !ours && !m.IsRunning() { // which waits until all is as it was
			continue
		}
		if m.DeletionTimestamp == nil {
			s.Cancel = append(s.Cancel, m)
		}
		s.RequeueAfter = again
	}
	if s.RequeueAfter > 0 || migrations.UnderWay(view.VMI) {
		return
	}
	s.reverted(view)
}

// reverted notes that nothing is to be copied any more.
func (s *Step) reverted(view View) {
	s.Status.MigratedVolumes = nil
	conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: volumemigration.Condition, Status: corev1.ConditionFalse,
		Reason:  v1.VirtualMachineInstanceReasonVolumesChangeCancellation,
		Message: "The volumes have the claims again that they had.",
	}, view.Now)
}

// copy says what is to be copied, and makes a migration then.
func (s *Step) copy(view View) {
	vmi := view.VMI
	described, why := volumemigration.Describe(vmi, view.Claims)
	if why == "" && !view.Settled {
		why = "components of virtkit are being rolled out"
	}
	for _, m := range volumemigration.Moves(vmi) {
		if why == "" {
			why = unready(view, m.To)
		}
	}
	if why != "" {
		s.say(view, reasonWaiting, why)
		s.RequeueAfter = again
		return
	}
	if !equality.Semantic.DeepEqual(described, vmi.Status.MigratedVolumes) {
		s.Status.MigratedVolumes = described
		s.mark(view)
		s.Failed = volumemigration.SetLeft(&s.Status, volumemigration.Leaves(vmi, view.Sources), view.Now)
		s.say(view, reasonCopying, text(vmi))
		return // The guest's node says then whether it can move.
	}
	if refusal := migrations.Refusal(vmi); refusal != "" || !migrations.Migratable(vmi) {
		if refusal == "" {
			refusal = "the guest's node has not said whether the guest can migrate"
		}
		s.say(view, reasonWaiting, refusal)
		s.RequeueAfter = again
		return
	}
	s.migrate(view)
}

// unready returns what keeps a disk from being copied to a claim that exists: it is being filled, an upload to it is
// not complete, or another pod uses it.
func unready(view View, name string) string {
	if dv, filled := view.DataVolumes[name]; filled {
		switch claims.StateOfClaim(view.Claims[name], dv) {
		case claims.Populated, claims.Claimable:
		case claims.Unclaimed:
			return claims.Unfilled(name, dv) + ", and is not filled for a guest that runs; make it with annotation " +
				claims.BindAtOnce + ", or use a PersistentVolumeClaim"
		default:
			return claims.Unfilled(name, dv)
		}
	}
	if message := uploads.Unusable(name, view.Claims[name].Annotations); message != "" {
		return message
	}
	if pod := view.Users[name]; pod != "" {
		return "PersistentVolumeClaim " + name + " is used by pod " + pod
	}
	return ""
}

// migrate makes a migration, unless one is under way or failed a short time ago.
func (s *Step) migrate(view View) {
	s.say(view, reasonCopying, text(view.VMI))
	if slices.ContainsFunc(view.Migrations, brings) {
		s.RequeueAfter = again
		return
	}
	name, left := migrationcontroller.NextUpdate(view.Migrations, view.Now, string(view.VMI.UID), text(view.VMI))
	if left > 0 {
		s.say(view, reasonWaiting, "the last migration failed: "+failure(view.Migrations)+"; the next begins at "+
			view.Now.Add(left).UTC().Format(time.TimeOnly)+" UTC")
		s.RequeueAfter = left
	}
	s.Migrate = name
}

// brings reports a migration that brings its disks, and makes the VM name the old claims again should it fail: no other
// is made for them.
func brings(m *v1.VirtualMachineInstanceMigration) bool {
	return slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer)
}

// failure returns why the last migration failed.
func failure(list []*v1.VirtualMachineInstanceMigration) string {
	last := slices.MaxFunc(list, migrations.ByAge)
	if ms := last.Status.MigrationState; ms != nil && ms.FailureReason != "" {
		return ms.FailureReason
	}
	return "migration " + last.Name
}

// text says what is copied.
func text(vmi *v1.VirtualMachineInstance) string {
	var all []string
	for _, m := range volumemigration.Moves(vmi) {
		all = append(all, m.Volume+" from claim "+m.From+" to "+m.To)
	}
	return "The guest's disks are copied while it migrates: " + strings.Join(all, ", ") + "."
}

func (s *Step) say(view View, reason, message string) {
	conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: volumemigration.Condition, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	}, view.Now)
}
