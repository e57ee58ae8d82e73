// Package replicasetcontroller keeps as many VirtualMachineInstances running as a VirtualMachineInstanceReplicaSet asks
// for. Its inputs are the sets and the VMIs that they own or could adopt; its outputs are the creation and deletion of
// VMIs, their owner references, and the sets' status.
//
// The core is pure: Claim (this file) decides which VMIs are a set's, Next which are missing or too many, Status
// (status.go) the status. The Reconciler (reconciler.go) reads, asks them, and writes. A VMI that has ended is deleted
// and replaced, by which a set also outlives the drain of a node; what its guest writes to its disks goes with it.
package replicasetcontroller

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

const (
	// burst is the number of a set's VMIs that are made or deleted in one go; KubeVirt's.
	burst = 250
	// shortLife is the age below which a VMI that ends counts as failing to start: its replacement is delayed.
	shortLife = time.Minute
	// pause is the time for which a VMI that ended early keeps its place, so that a guest that cannot start is not made
	// anew all the time.
	pause = 10 * time.Second
)

// Claimed holds the VMIs of a namespace that are a set's, and what to write for that to be so.
type Claimed struct {
	// Mine are VMIs that the set owns and selects, Adopt VMIs that it selects and nobody owns, Release VMIs that it
	// owns and does not select any more.
	Mine, Adopt, Release []*v1.VirtualMachineInstance
}

// Claim sorts VMIs. A set that is being deleted adopts nothing and lets nothing go.
func Claim(
	set *v1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmis []*v1.VirtualMachineInstance,
) Claimed {
	var out Claimed
	for _, instance := range vmis {
		owner, selected := metav1.GetControllerOfNoCopy(instance), selector.Matches(labels.Set(instance.Labels))
		switch {
		case owner != nil && owner.UID != set.UID:
		case owner != nil && (selected || set.DeletionTimestamp != nil):
			out.Mine = append(out.Mine, instance)
		case owner != nil:
			out.Release = append(out.Release, instance)
		case selected && set.DeletionTimestamp == nil && instance.DeletionTimestamp == nil:
			out.Adopt = append(out.Adopt, instance)
		}
	}
	return out
}

// View is the input of Next.
type View struct {
	Set *v1.VirtualMachineInstanceReplicaSet
	// Selector is the set's.
	Selector labels.Selector
	// VMIs are the set's, including those that it is about to adopt.
	VMIs []*v1.VirtualMachineInstance
	// Adopt and Release are as in Claimed; none for a set that the API server does not have any more.
	Adopt, Release []*v1.VirtualMachineInstance
	Now            time.Time
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Adopt are VMIs that get the set as their owner, Release are VMIs that lose it.
	Adopt, Release []*v1.VirtualMachineInstance
	// Create is the number of VMIs to make.
	Create int
	// Delete are VMIs that are too many, Replace VMIs that have ended.
	Delete, Replace []*v1.VirtualMachineInstance
	frame.Requeue
}

// Next decides. For a set that is paused or being deleted nothing is made or deleted.
func Next(view View) Step {
	step := Step{Adopt: view.Adopt, Release: view.Release}
	if view.Set.Spec.Paused || view.Set.DeletionTimestamp != nil {
		return step
	}
	active, resting := Active(view.VMIs), 0
	for _, instance := range view.VMIs {
		if instance.DeletionTimestamp != nil || counts(instance) {
			continue
		}
		if left := rest(instance, view.Now); left > 0 {
			resting++
			step.RequeueAfter = min(cmp.Or(step.RequeueAfter, left), left)
			continue
		}
		step.Replace = append(step.Replace, instance)
	}
	switch want := Wanted(view.Set); {
	case len(active) > want:
		order(active)
		step.Delete = active[:min(len(active)-want, burst)]
	case len(active)+resting < want:
		step.Create = min(want-len(active)-resting, burst)
	}
	step.Replace = step.Replace[:min(len(step.Replace), burst)]
	return step
}

// Wanted returns how many VMIs a set asks for.
func Wanted(set *v1.VirtualMachineInstanceReplicaSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// Active returns the VMIs that count as replicas: neither over nor on their way out.
func Active(vmis []*v1.VirtualMachineInstance) []*v1.VirtualMachineInstance {
	var out []*v1.VirtualMachineInstance
	for _, instance := range vmis {
		if instance.DeletionTimestamp == nil && counts(instance) {
			out = append(out, instance)
		}
	}
	return out
}

// counts reports a VMI that has not ended and whose pod is not about to.
func counts(instance *v1.VirtualMachineInstance) bool {
	if instance.IsFinal() {
		return false
	}
	ready := conditions.Find(instance.Status.Conditions, v1.VirtualMachineInstanceReady)
	return ready == nil || ready.Status != corev1.ConditionFalse || ready.Reason != v1.PodTerminatingReason
}

// Ready reports a VMI that can be reached.
func Ready(instance *v1.VirtualMachineInstance) bool {
	return conditions.True(instance.Status.Conditions, v1.VirtualMachineInstanceReady)
}

// rest returns how long a VMI that has ended early still keeps its place.
func rest(instance *v1.VirtualMachineInstance, now time.Time) time.Duration {
	if !instance.IsFinal() {
		return 0
	}
	ended := conditions.PhaseSince(&instance.Status, instance.Status.Phase)
	if ended.IsZero() || ended.Sub(instance.CreationTimestamp.Time) >= shortLife {
		return 0
	}
	return max(0, ended.Add(pause).Sub(now))
}

// order sorts by deletion priority: guests that do not run yet, then those that are not ready, then those that share
// their node with most others, and of the rest the youngest.
func order(vmis []*v1.VirtualMachineInstance) {
	company := map[string]int{}
	for _, instance := range vmis {
		if instance.Status.NodeName != "" {
			company[instance.Status.NodeName]++
		}
	}
	slices.SortStableFunc(vmis, func(a, b *v1.VirtualMachineInstance) int {
		return cmp.Or(
			cmp.Compare(stage(a), stage(b)),
			cmp.Compare(company[b.Status.NodeName], company[a.Status.NodeName]),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
}

// stage returns how far a guest is on its way to being ready.
func stage(instance *v1.VirtualMachineInstance) int {
	switch {
	case instance.Status.NodeName == "":
		return 0
	case instance.Status.Phase != v1.Running:
		return 1
	case !Ready(instance):
		return 2
	}
	return 3
}

// Instance returns the VMI that a set's template describes, whose name the API server completes.
func Instance(set *v1.VirtualMachineInstanceReplicaSet) *v1.VirtualMachineInstance {
	template := set.Spec.Template.DeepCopy()
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    set.Namespace,
			GenerateName: cmp.Or(template.ObjectMeta.Name, template.ObjectMeta.GenerateName, set.Name+"-"),
			Labels:       template.ObjectMeta.Labels,
			Annotations:  reserved.Without(template.ObjectMeta.Annotations),
			// Also set at admission; here so that there is no moment without.
			Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1.VirtualMachineInstanceReplicaSetGroupVersionKind),
			},
		},
		Spec: template.Spec,
	}
}
