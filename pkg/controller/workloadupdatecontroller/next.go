// Package workloadupdatecontroller brings running guests to the virt-launcher of this installation. A guest keeps
// the launcher, and with it the QEMU, that it was started with; after an upgrade it is outdated until it moves or
// starts again. Inputs are the KubeVirt resource's spec.workloadUpdateStrategy and status, the VMIs and their
// migrations; outputs are migrations and evictions, the label kubevirt.io/outdatedLauncherImage, and the count in
// the KubeVirt resource's status.
//
//	outdated, LiveMigratable, method LiveMigrate ──► VirtualMachineInstanceMigration, within the cluster's limit
//	condition MigrationRequired, the same        ──► the same
//	outdated, else, method Evict ─────────────────► eviction of its pod, in batches; its VM starts it again
//
// The core is pure: Next (this file) decides what to do; the Reconciler (reconciler.go) reads, asks, and writes.
package workloadupdatecontroller

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// What the strategy means where it is silent; KubeVirt's.
const (
	defaultBatchSize     = 10
	defaultBatchInterval = time.Minute
)

// View is the input of Next, which changes nothing in it.
type View struct {
	KubeVirt *v1.KubeVirt
	Strategy v1.KubeVirtWorkloadUpdateStrategy
	// Settled says that the components themselves are all there and up to date; guests wait for that.
	Settled bool
	// Image is the launcher's that guests should have.
	Image string
	// Limit is the number of migrations that the cluster may have at a time.
	Limit int
	// VMIs and Migrations are all of the cluster.
	VMIs       []*v1.VirtualMachineInstance
	Migrations []*v1.VirtualMachineInstanceMigration
	// LastBatch is when guests were last evicted; Tried is when each was, by UID, if that was not long ago.
	LastBatch time.Time
	Tried     map[types.UID]time.Time
	// GuestPods are the pods of guests to evict, by the VMI's UID.
	GuestPods map[types.UID]*corev1.Pod
	Now       time.Time
}

// Move is a guest that is to migrate, and the name of its migration. That depends on the guest and on how often this
// was tried, so that a second one is not made where the first has not been seen yet.
type Move struct {
	VMI  *v1.VirtualMachineInstance
	Name string
}

// Step holds what to write.
type Step struct {
	// Outdated is the number of guests that run an older launcher.
	Outdated int
	// Mark and Unmark are the VMIs that are to get the label, or to lose it.
	Mark, Unmark []*v1.VirtualMachineInstance
	Migrate      []Move
	Evict        []*v1.VirtualMachineInstance
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	var step Step
	history := historyOf(view.Migrations)
	var movable, others []*v1.VirtualMachineInstance
	for _, instance := range view.VMIs {
		outdated := Outdated(instance, view.Image)
		_, marked := instance.Labels[v1.OutdatedLauncherImageLabel]
		switch {
		case outdated && !marked:
			step.Mark = append(step.Mark, instance)
		case !outdated && marked && instance.Status.LauncherContainerImageVersion == view.Image:
			step.Unmark = append(step.Unmark, instance)
		}
		if outdated {
			step.Outdated++
		} else if !mustMove(instance) {
			continue
		}
		of := history[keyOf(instance)]
		switch {
		case instance.Status.Phase != v1.Running || of.underWay || migrations.UnderWay(instance):
		case wants(view.Strategy, v1.WorkloadUpdateMethodLiveMigrate) && migrations.Migratable(instance):
			if left := of.wait(view.Now); left > 0 {
				step.again(left)
				continue
			}
			movable = append(movable, instance)
		case outdated && wants(view.Strategy, v1.WorkloadUpdateMethodEvict):
			others = append(others, instance)
		}
	}
	if !view.Settled {
		return step // Its end is an event.
	}
	step.migrate(view, movable, history)
	step.evict(view, others)
	return step
}

// Outdated reports whether a guest runs in another launcher than the given one. A guest that has not begun, or whose
// launcher is not known, is not.
func Outdated(instance *v1.VirtualMachineInstance, image string) bool {
	is := instance.Status.LauncherContainerImageVersion
	return is != "" && is != image && !instance.IsFinal() && instance.DeletionTimestamp == nil &&
		vmicontroller.Scheduled(instance)
}

// mustMove reports a guest that gets what its VMI asks for in another pod only, such as a new interface or network.
func mustMove(instance *v1.VirtualMachineInstance) bool {
	return conditions.True(instance.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) &&
		!instance.IsFinal() && instance.DeletionTimestamp == nil
}

// migrate migrates as many guests as the cluster's limit leaves room for, the oldest first.
func (s *Step) migrate(view View, movable []*v1.VirtualMachineInstance, history map[types.NamespacedName]past) {
	room := view.Limit
	for _, m := range view.Migrations {
		if m.IsRunning() || !m.IsFinal() && migrationcontroller.IsUpdate(m) {
			room--
		}
	}
	slices.SortFunc(movable, older)
	for _, instance := range movable[:min(len(movable), max(room, 0))] { // The end of a migration brings the next.
		s.Migrate = append(s.Migrate, Move{instance, history[keyOf(instance)].next(instance, view.Image)})
	}
}

// evict evicts the next batch when it is time, first the guests that were not tried yet.
func (s *Step) evict(view View, others []*v1.VirtualMachineInstance) {
	size, interval := defaultBatchSize, defaultBatchInterval
	if n := view.Strategy.BatchEvictionSize; n != nil {
		size = *n
	}
	if d := view.Strategy.BatchEvictionInterval; d != nil {
		interval = d.Duration
	}
	if len(others) == 0 || size <= 0 {
		return
	}
	if left := interval - view.Now.Sub(view.LastBatch); left > 0 {
		s.again(left)
		return
	}
	slices.SortFunc(others, func(a, b *v1.VirtualMachineInstance) int {
		return cmp.Or(view.Tried[a.UID].Compare(view.Tried[b.UID]), older(a, b))
	})
	s.Evict = others[:min(size, len(others))]
	// One whose eviction is refused has no event when that would be allowed.
	s.again(max(interval, time.Second))
}

func (s *Step) again(in time.Duration) {
	if s.RequeueAfter == 0 || in < s.RequeueAfter {
		s.RequeueAfter = in
	}
}

func wants(strategy v1.KubeVirtWorkloadUpdateStrategy, method v1.WorkloadUpdateMethod) bool {
	return slices.Contains(strategy.WorkloadUpdateMethods, method)
}

// past holds what is known of a guest's migrations.
type past struct {
	// underWay: there is a migration that is not over, whoever made it.
	underWay bool
	// names are the names of all migrations that were made here.
	names []string
	// all are the guest's migrations, whoever made them.
	all []*v1.VirtualMachineInstanceMigration
}

// wait returns how much longer a guest is left alone.
func (p past) wait(now time.Time) time.Duration {
	failures, last := migrationcontroller.Failures(p.all, migrationcontroller.IsUpdate)
	return migrationcontroller.UpdateWait(failures, last, now)
}

func historyOf(list []*v1.VirtualMachineInstanceMigration) map[types.NamespacedName]past {
	out := map[types.NamespacedName]past{}
	for _, m := range list {
		key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
		p := out[key]
		if migrationcontroller.IsUpdate(m) {
			p.names = append(p.names, m.Name)
		}
		p.all = append(p.all, m)
		p.underWay = p.underWay || !m.IsFinal()
		out[key] = p
	}
	return out
}

// next returns the name of the guest's next migration to an image: the first that none has had.
func (p past) next(instance *v1.VirtualMachineInstance, image string) string {
	for n := len(p.names); ; n++ {
		name := migrationcontroller.UpdateName(string(instance.UID), image, strconv.Itoa(n))
		if !slices.Contains(p.names, name) {
			return name
		}
	}
}

func keyOf(instance *v1.VirtualMachineInstance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name}
}

func older(a, b *v1.VirtualMachineInstance) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}
