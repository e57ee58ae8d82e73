package vmcontroller

import (
	"context"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// A pod whose network cannot be made, for example since a pool of addresses is used up, has a node and no container.
// Nothing of the pod says why: the kubelet makes an event of it, and tries again. virt-controller asks for these events
// where a launcher pod is in that state for longer than any needs, and the VM's condition Failure has the last one.

const (
	// reasonSandbox is the Failure reason of a VM whose pod's sandbox or network cannot be made, and the kubelet's of
	// the event.
	reasonSandbox = "FailedCreatePodSandBox"
	// sandboxTime is how long a pod's sandbox may take before it is asked about.
	sandboxTime = 20 * time.Second
	// sandboxMessage is the longest message that is passed on, bytes.
	sandboxMessage = 1024
)

// bare returns the launcher pod of which its node has made nothing, though it has had the time; nil for none. in is
// after how long to look again, 0 for not at all.
func (view *View) bare() (pod *corev1.Pod, in time.Duration) {
	if !life.Alive(view.VMI) {
		return nil, 0
	}
	for _, pod := range view.Pods {
		scheduled := conditions.With(pod.Status.Conditions, corev1.PodScheduled, corev1.ConditionTrue)
		if scheduled == nil || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			continue
		}
		if left := sandboxTime - view.Now.Sub(scheduled.LastTransitionTime.Time); left > 0 {
			return nil, left
		}
		if conditions.With(pod.Status.Conditions, corev1.PodReadyToStartContainers, corev1.ConditionFalse) != nil {
			return pod, retryMissing
		}
	}
	return nil, 0
}

// lookAtSandbox reads why the VM's pod has no sandbox, once that takes long, and says when to look again. Where it
// cannot be read the VM goes on without.
func (r *Reconciler) lookAtSandbox(ctx context.Context, view *View) {
	pod, in := view.bare()
	if view.SandboxIn = in; pod == nil {
		return
	}
	var events corev1.EventList
	err := r.Live.List(ctx, &events, client.InNamespace(pod.Namespace),
		client.MatchingFields{"involvedObject.uid": string(pod.UID), "reason": reasonSandbox})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list events of a pod", "pod", pod.Name)
		return
	}
	view.Sandbox = lastSandbox(events.Items)
}

// sandboxID is the name that a runtime gives a sandbox, another one at each attempt.
var sandboxID = regexp.MustCompile(`[0-9a-f]{64}`)

// lastSandbox returns what the newest of the events says, the same for each attempt that fails for the same reason; ""
// without events.
func lastSandbox(events []corev1.Event) string {
	var newest *corev1.Event
	for i := range events {
		if event := &events[i]; newest == nil || !event.LastTimestamp.Before(&newest.LastTimestamp) {
			newest = event
		}
	}
	if newest == nil {
		return ""
	}
	text := strings.TrimPrefix(newest.Message, "(combined from similar events): ")
	text = sandboxID.ReplaceAllString(text, "…")
	if over := len(text) - sandboxMessage; over > 0 { // the cause is at the end
		text = "…" + strings.ToValidUTF8(text[over:], "")
	}
	return text
}

// sandboxFailure returns the Failure of a pod whose sandbox cannot be made; nil when there is none.
func (view *View) sandboxFailure() *v1.VirtualMachineCondition {
	if view.Sandbox == "" {
		return nil
	}
	return &v1.VirtualMachineCondition{
		Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: reasonSandbox, Message: view.Sandbox,
	}
}
