// Package disruptioncontroller keeps guests' pods from being evicted. Its inputs are VMIs, their eviction
// strategies and their pods; its output is one PodDisruptionBudget for each VMI whose strategy protects it, which
// is deleted with the VMI.
//
// virt-api's webhook answers most evictions before the budget is looked at; the budget decides when no virt-api
// answers. It asks for one pod, and for two while the guest moves, so that neither can be evicted.
package disruptioncontroller

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
)

// namePrefix begins the names of the budgets, as KubeVirt's.
const namePrefix = "kubevirt-disruption-budget-"

// View is the input of Next.
type View struct {
	VMI *v1.VirtualMachineInstance
	// Strategy is the eviction strategy that applies to it.
	Strategy v1.EvictionStrategy
	// Budget is the existing budget, nil for none.
	Budget *policyv1.PodDisruptionBudget
	// Others are budgets of other names that the VMI controls, an older virt-controller's for example.
	Others []*policyv1.PodDisruptionBudget
	// Pods is the number of the VMI's launcher pods that stay.
	Pods int
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Create is the budget to make, and MinAvailable the new value of the existing budget's; nil means nothing.
	Create       *policyv1.PodDisruptionBudget
	MinAvailable *intstr.IntOrString
	// Failed is the reason why neither can be done.
	Failed error
	// Delete takes the budget away.
	Delete bool
	// Others are to go, for with two budgets no pod is ever evicted.
	Others []*policyv1.PodDisruptionBudget
	frame.Requeue
}

// Next decides. A guest that has ended or is about to needs no budget, but deleting it would be a needless write: it
// keeps no pod of such a VMI, and is deleted with the VMI.
func Next(view View) Step {
	switch {
	case !eviction.Alive(view.VMI):
		return Step{}
	case !eviction.Protected(view.VMI, view.Strategy):
		return Step{Delete: view.Budget != nil && view.Budget.DeletionTimestamp == nil, Others: view.Others}
	}
	want := Budget(view.VMI, min(max(view.Pods, 1), 2))
	if have := view.Budget; have != nil && have.Spec.MinAvailable != nil &&
		*have.Spec.MinAvailable == *want.Spec.MinAvailable {
		return Step{Others: view.Others}
	}
	// The others keep the pod until this one does.
	switch {
	case view.Budget == nil:
		return Step{Create: want}
	case !metav1.IsControlledBy(view.Budget, view.VMI):
		return Step{
			Failed: fmt.Errorf("PodDisruptionBudget %s exists already and is not this VMI's: delete it", want.Name),
		}
	}
	return Step{MinAvailable: want.Spec.MinAvailable}
}

// Name returns the name of a VMI's budget.
func Name(instance *v1.VirtualMachineInstance) string {
	return namePrefix + names.Hash(string(instance.UID), 10)
}

// Budget keeps as many pods of a VMI as are given.
func Budget(instance *v1.VirtualMachineInstance, pods int) *policyv1.PodDisruptionBudget {
	least := intstr.FromInt32(int32(pods))
	mine := map[string]string{v1.CreatedByLabel: string(instance.UID)}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: instance.Namespace, Name: Name(instance), Labels: mine,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(instance, v1.VirtualMachineInstanceGroupVersionKind),
			},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector:     &metav1.LabelSelector{MatchLabels: mine},
		},
	}
}
