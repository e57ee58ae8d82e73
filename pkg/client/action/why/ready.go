package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// gatePatience is how long a guest may run before its pod is Ready, for which virt-controller and the kubelet each need
// a moment.
const gatePatience = 15 * time.Second

// PodReady reports whether a pod is Ready, which Services go by, and if a launcher's that runs is not, why.
func PodReady(pod *corev1.Pod) (ready bool, why string) {
	c := conditions.Find(pod.Status.Conditions, corev1.PodReady)
	if c != nil && c.Status == corev1.ConditionTrue {
		return true, ""
	}
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return false, "" // the phase says it
	}
	if gated(pod) {
		gate := conditions.Find(pod.Status.Conditions, v1.VirtualMachineUnpaused)
		switch {
		case gate == nil:
			return false, "no guest runs in it"
		case gate.Status != corev1.ConditionTrue:
			return false, cmp.Or(gate.Message, gate.Reason)
		}
	}
	if c == nil {
		return false, "the kubelet has not said so"
	}
	return false, cmp.Or(c.Message, c.Reason)
}

func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates,
		func(g corev1.PodReadinessGate) bool { return g.ConditionType == v1.VirtualMachineUnpaused })
}

// notReady returns the condition by which a running guest is not Ready, nil when it is Ready. For a paused guest it
// returns nil: another condition says so.
func (e *explanation) notReady() *v1.VirtualMachineInstanceCondition {
	if e.VMI == nil || e.VMI.Status.Phase != v1.Running {
		return nil
	}
	c := conditions.With(e.VMI.Status.Conditions, v1.VirtualMachineInstanceReady, corev1.ConditionFalse)
	if c == nil || c.Reason == v1.GuestNotRunningReason {
		return nil
	}
	return c
}

// probeFailed returns the kubelet's last event of a failed readiness probe of the guest's pods.
func (e *explanation) probeFailed() string {
	for _, event := range slices.Backward(e.Events) {
		own := event.InvolvedObject.Kind == "Pod" && slices.ContainsFunc(e.Pods,
			func(pod corev1.Pod) bool { return pod.Name == event.InvolvedObject.Name })
		if own && event.Reason == "Unhealthy" && strings.HasPrefix(event.Message, "Readiness probe") {
			return "event Unhealthy: " + event.Message
		}
	}
	return ""
}

// readiness adds a cause when the pod of a running guest is not Ready, and so gets no traffic from Services.
func (e *explanation) readiness(pod *corev1.Pod) {
	if e.VMI.Status.Phase != v1.Running || pod.Spec.NodeName != e.VMI.Status.NodeName || !gated(pod) {
		return
	}
	if conditions.True(e.VMI.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return // which is said
	}
	if e.notReady() != nil {
		return // which the instance says, and why
	}
	if ready, why := PodReady(pod); !ready && why != "" && e.Now.Sub(phaseSince(e.VMI)) > gatePatience &&
		e.moving() == nil {
		e.add(rankSymptom, LayerPod, e.podObject(), Waiting, "PodNotReady",
			"the guest runs, but Services send it nothing, because its pod is not Ready: "+why,
			"virtctl doctor", "kubectl -n kubevirt logs deployment/virt-controller")
	}
}

// moving returns the migration that is under way, nil when there is none.
func (e *explanation) moving() *v1.VirtualMachineInstanceMigration {
	return migrate.UnderWay(e.Migrations)
}

// onItsWay adds how far a guest's migration is.
func (e *explanation) onItsWay() {
	if m := e.moving(); m != nil {
		e.add(rankRemark, LayerVMI, "vmim/"+m.Name, OK, "Migrating",
			fmt.Sprintf("migration %s is %s", m.Name, migrate.Stage(m)),
			"virtctl migrate-cancel "+e.Name+e.flag())
	}
}
