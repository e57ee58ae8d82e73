package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// stack looks at virtkit itself.
func (e *explanation) stack() {
	const object = "kubevirt/" + names.KubeVirt
	if e.NotInstalled {
		e.add(rankAbsent, LayerStack, object, Broken, "NotInstalled", "virtkit is not installed in this cluster",
			"virtctl install --wait")
		return
	}
	if kv := e.KubeVirt; kv != nil {
		switch {
		case kv.DeletionTimestamp != nil:
			e.add(rankStack, LayerStack, object, Broken, "Uninstalling", "virtkit is being removed from this cluster",
				"virtctl install --wait")
		case kv.Status.Phase != "" && kv.Status.Phase != v1.KubeVirtPhaseDeployed:
			e.add(rankSymptom, LayerStack, object, Waiting, "NotDeployed",
				fmt.Sprintf("virtkit is not ready yet: phase %s", kv.Status.Phase), "virtctl doctor")
		}
	}
	if !e.readable("pods of virtkit") {
		return
	}
	for _, component := range []struct{ name, without string }{
		{names.VirtController, "no VM is started, stopped or moved"},
		{names.VirtAPI, "nothing can be created, started or connected to"},
	} {
		pods := e.component(component.name)
		if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return ready(pod) }) {
			continue
		}
		object := "deployment/" + component.name
		if len(pods) == 0 {
			e.add(rankStack, LayerStack, object, Broken, "ComponentMissing",
				fmt.Sprintf("%s does not run at all: without it %s", component.name, component.without),
				"virtctl install --wait",
				"kubectl -n "+names.Namespace+" describe deployment "+component.name)
			continue
		}
		e.add(rankStack, LayerStack, object, Broken, "ComponentNotReady",
			fmt.Sprintf("%s is not ready: %s; without it %s", component.name, trouble(pods[0]), component.without),
			"kubectl -n "+names.Namespace+" logs deployment/"+component.name, "virtctl doctor")
	}
}

func (e *explanation) readable(what string) bool { return !slices.Contains(e.Unreadable, what) }

// component are the pods of one of virtkit's workloads that are not over.
func (e *explanation) component(name string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range e.Stack {
		pod := &e.Stack[i]
		if pod.Labels[names.LabelComponent] == name && !life.PodEnded(pod) {
			out = append(out, pod)
		}
	}
	return out
}

func ready(pod *corev1.Pod) bool {
	c := conditions.Find(pod.Status.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
}

// trouble is what a pod that is not ready says of itself.
func trouble(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return strings.TrimSuffix(c.State.Waiting.Reason+": "+c.State.Waiting.Message, ": ")
		case c.State.Terminated != nil:
			return "its container ended: " + c.State.Terminated.Reason
		}
	}
	if c := conditions.With(pod.Status.Conditions, corev1.PodScheduled, corev1.ConditionFalse); c != nil {
		return c.Message
	}
	if c := conditions.Find(pod.Status.Conditions, corev1.PodReady); c != nil && c.Message != "" {
		return c.Message
	}
	return "phase " + string(pod.Status.Phase)
}
