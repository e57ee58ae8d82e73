// Package evacuationcontroller moves guests off the nodes that they are to leave. Its inputs are the mark that an
// eviction left on a VMI (status.evacuationNodeName), the taint of a node that is drained that way, and the
// existing migrations; its output are migrations. The target's virt-handler removes the mark when the guest has
// arrived.
//
//	VMI, marked ──Next──► VirtualMachineInstanceMigration kubevirt-evacuation-… ──migration──► another node
//
// It makes no more migrations than may run, so that those that people ask for do not queue behind a whole node.
package evacuationcontroller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Reasons of events on a VMI; KubeVirt's words.
const (
	ReasonSuccessfulCreate = "SuccessfulCreate"
	ReasonFailedCreate     = "FailedCreate"
	ReasonBackoff          = "MigrationBackoff"
)

const (
	// namePrefix begins the names of the migrations, as KubeVirt's.
	namePrefix = "kubevirt-evacuation-"
	// waitAgain is the longest delay before a VMI that waits for others is looked at again.
	waitAgain = 5 * time.Second
)

// Limits bound how many migrations may run or wait; zero means none.
type Limits struct {
	Cluster, PerNode int
}

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Strategy is the eviction strategy that applies to it.
	Strategy v1.EvictionStrategy
	// Draining says that its node has the drain taint.
	Draining bool
	// Pods is the number of its launcher pods that have not ended. A pod that is being deleted counts, unlike for the
	// budget, which is about pods that can be evicted: the last migration is not cleaned up before that pod is gone.
	Pods int
	// Counts are its migrations and how many others there are.
	Counts migrations.Counts
	Limits Limits
	// Reported is the event last recorded for it, zero for none, so that it is not recorded at each look.
	Reported vmicontroller.Event
	Now      time.Time
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Create is a migration to be made.
	Create *v1.VirtualMachineInstanceMigration
	// Event is an event to record; nil means none. Forget says that View.Reported does not count any more.
	Event  *vmicontroller.Event
	Forget bool
	frame.Requeue
}

// Wanted reports whether the guest is to be moved off its node.
func Wanted(instance *v1.VirtualMachineInstance, strategy v1.EvictionStrategy, draining bool) bool {
	marked := instance.Status.EvacuationNodeName != "" && instance.Status.EvacuationNodeName == instance.Status.NodeName
	return (marked || draining) && life.Running(instance) && eviction.Moves(instance, strategy)
}

// Next decides.
func Next(view View) Step {
	if !Wanted(view.VMI, view.Strategy, view.Draining) {
		return Step{Forget: true}
	}
	newestFirst := slices.Clone(view.Counts.Own)
	slices.SortFunc(newestFirst,
		func(a, b *v1.VirtualMachineInstanceMigration) int { return migrations.ByAge(b, a) })
	if slices.ContainsFunc(newestFirst,
		func(m *v1.VirtualMachineInstanceMigration) bool { return !m.IsFinal() }) {
		return Step{} // its end is an event
	}
	var step Step
	switch failures, last := migrationcontroller.Failures(view.Counts.Own, away(view.VMI.Status.NodeName)); {
	case view.Pods > 1:
		step.RequeueAfter = waitAgain // what the last migration left is being tidied up
	case failures > 0 && view.Now.Before(last.Add(migrationcontroller.Backoff(failures))):
		step.RequeueAfter = last.Add(migrationcontroller.Backoff(failures)).Sub(view.Now)
		event := vmicontroller.Event{
			Type: corev1.EventTypeWarning, Reason: ReasonBackoff,
			Message: fmt.Sprintf("%d migrations away from node %s failed; the next is made %s after the last one's end",
				failures, view.VMI.Status.NodeName, migrationcontroller.Backoff(failures)),
		}
		if event != view.Reported {
			step.Event = &event
		}
	case view.Counts.Unfinished.Cluster >= view.Limits.Cluster ||
		view.Counts.Unfinished.Away >= view.Limits.PerNode:
		step.RequeueAfter = waitAgain
	default:
		step.Create = next(view.VMI, newestFirst)
	}
	return step
}

// away returns a function that reports whether a migration was made to move a guest off a node.
func away(node string) func(*v1.VirtualMachineInstanceMigration) bool {
	return func(m *v1.VirtualMachineInstanceMigration) bool {
		return strings.HasPrefix(m.Name, namePrefix) && m.Annotations[v1.EvacuationMigrationAnnotation] == node
	}
}

// next returns the VMI's next migration. Its name follows from the last one, so that it cannot be made twice.
func next(
	instance *v1.VirtualMachineInstance, newestFirst []*v1.VirtualMachineInstanceMigration,
) *v1.VirtualMachineInstanceMigration {
	var last types.UID
	if len(newestFirst) > 0 {
		last = newestFirst[0].UID
	}
	name := namePrefix + names.Hash(string(instance.UID)+"/"+string(last)+"/"+instance.Status.NodeName, 10)
	owner := metav1.OwnerReference{
		APIVersion: v1.VirtualMachineInstanceGroupVersionKind.GroupVersion().String(),
		Kind:       v1.VirtualMachineInstanceGroupVersionKind.Kind, Name: instance.Name, UID: instance.UID,
	}
	annotations := map[string]string{v1.EvacuationMigrationAnnotation: instance.Status.NodeName}
	if volumemigration.OptedIn(instance) && volumemigration.Bring(instance).Helps() {
		annotations[volumemigration.WithDisksAnnotation] = "true"
	}
	return &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: instance.Namespace, Name: name, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: instance.Name},
	}
}
