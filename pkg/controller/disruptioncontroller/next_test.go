package disruptioncontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestNext(t *testing.T) {
	instance := func(change func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "uid"}}
		vmi.Status.Phase = v1.Running
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		}
		if change != nil {
			change(vmi)
		}
		return vmi
	}
	running := instance(nil)
	tied := instance(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Conditions[0].Status = corev1.ConditionFalse })
	over := instance(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Failed })
	leaving := instance(func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{} })
	one, two := Budget(running, 1), Budget(running, 2)
	theirs := Budget(running, 1)
	theirs.OwnerReferences = nil
	goes := Budget(running, 1)
	goes.DeletionTimestamp = &metav1.Time{}
	old := []*policyv1.PodDisruptionBudget{Budget(running, 2)}
	move, ifPossible := v1.EvictionStrategyLiveMigrate, v1.EvictionStrategyLiveMigrateIfPossible
	for name, tc := range map[string]struct {
		view  View
		want  int32 // pods of the budget that is written; 0 for none
		takes bool
		// others is how many older budgets go.
		others int
		fails  bool
	}{
		"unprotected":              {view: View{VMI: running, Strategy: v1.EvictionStrategyNone, Pods: 1}},
		"protected":                {view: View{VMI: running, Strategy: move, Pods: 1}, want: 1},
		"pod not seen yet":         {view: View{VMI: running, Strategy: move}, want: 1},
		"as it should be":          {view: View{VMI: running, Strategy: move, Budget: one, Pods: 1}},
		"moves":                    {view: View{VMI: running, Strategy: move, Budget: one, Pods: 2}, want: 2},
		"somebody else's":          {view: View{VMI: running, Strategy: move, Budget: theirs, Pods: 2}, fails: true},
		"goes on moving":           {view: View{VMI: running, Strategy: move, Budget: two, Pods: 2}},
		"what two migrations left": {view: View{VMI: running, Strategy: move, Budget: two, Pods: 3}},
		"has moved":                {view: View{VMI: running, Strategy: move, Budget: two, Pods: 1}, want: 1},
		"External":                 {view: View{VMI: tied, Strategy: v1.EvictionStrategyExternal, Pods: 1}, want: 1},
		"cannot move":              {view: View{VMI: tied, Strategy: move, Pods: 1}, want: 1},
		"cannot move, if possible": {view: View{VMI: tied, Strategy: ifPossible, Pods: 1}},
		"cannot move any more":     {view: View{VMI: tied, Strategy: ifPossible, Budget: one, Pods: 1}, takes: true},
		"need not be kept any more": {
			view: View{VMI: running, Strategy: v1.EvictionStrategyNone, Budget: one, Pods: 1}, takes: true,
		},
		"is being taken away": {view: View{VMI: running, Strategy: v1.EvictionStrategyNone, Budget: goes, Pods: 1}},
		"over":                {view: View{VMI: over, Strategy: move, Budget: one}},
		"an older one, too":   {view: View{VMI: running, Strategy: move, Budget: one, Pods: 1, Others: old}, others: 1},
		"an older one alone":  {view: View{VMI: running, Strategy: move, Pods: 1, Others: old}, want: 1},
		"an older one for nothing": {
			view: View{VMI: running, Strategy: v1.EvictionStrategyNone, Pods: 1, Others: old}, others: 1,
		},
		"an older one of one over": {view: View{VMI: over, Strategy: move, Others: old}},
		"being deleted":            {view: View{VMI: leaving, Strategy: move, Budget: two, Pods: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(tc.view)
			var got int32
			if step.Create != nil {
				got = step.Create.Spec.MinAvailable.IntVal
			}
			if step.MinAvailable != nil {
				got = step.MinAvailable.IntVal
			}
			if step.Create != nil && tc.view.Budget != nil || step.MinAvailable != nil && tc.view.Budget == nil {
				t.Errorf("create %v, change to %v", step.Create, step.MinAvailable)
			}
			if (step.Failed != nil) != tc.fails {
				t.Errorf("fails: %v", step.Failed)
			}
			if got != tc.want || step.Delete != tc.takes || len(step.Others) != tc.others {
				t.Errorf("budget of %d pods, delete %t, and %d others", got, step.Delete, len(step.Others))
			}
		})
	}
	if one.Name != Name(running) || !metav1.IsControlledBy(one, running) ||
		one.Spec.Selector.MatchLabels[v1.CreatedByLabel] != "uid" {
		t.Errorf("budget %+v", one)
	}
}
