// Package uploadcontroller is the reconciler PersistentVolumeClaim → Pod of uploads. Its inputs are claims with the
// annotation of a request, which virt-api writes, and their pods; its outputs are one pod for each, which takes the
// bytes (pkg/launcher/uploader), and the claim's annotation of how the upload ended, as the pod's termination message
// says.
package uploadcontroller

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	// startLimit is the time after its request within which an upload must have a running pod.
	startLimit = time.Hour
	// again is the delay before a refused pod is tried again.
	again = 10 * time.Second
)

// View is the input of Next.
type View struct {
	Claim   *corev1.PersistentVolumeClaim
	Request *uploads.Request
	State   *uploads.State
	// Pod is the upload's, nil for none; Others are the claim's of earlier uploads.
	Pod    *corev1.Pod
	Others []*corev1.Pod
	// Facts hold what a pod for the upload depends on besides.
	Facts Facts
	Now   time.Time
}

// Step holds what to do; the zero Step does nothing.
type Step struct {
	// Create is the upload's pod, to be created.
	Create *corev1.Pod
	// Delete are pods to be deleted.
	Delete []*corev1.Pod
	// Say is the claim's state as it should be while the upload is under way; End is its last one.
	Say, End *uploads.State
	// Labels are the labels that the claim gets with End.
	Labels map[string]string
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	step := Step{Delete: alive(view.Others...)}
	request := view.Request
	switch {
	case request == nil:
		step.Delete = append(step.Delete, alive(view.Pod)...)
	case request.Cancel:
		step.Delete = append(step.Delete, alive(view.Pod)...)
		if view.Pod == nil {
			step.end(view, uploads.State{Phase: uploads.Cancelled, Message: "the upload was cancelled"})
		}
	case view.Claim.DeletionTimestamp != nil:
		step.Delete = append(step.Delete, alive(view.Pod)...) // the claim waits for that
	case view.Pod != nil && life.PodEnded(view.Pod):
		step.end(view, endOf(view.Pod))
	case view.Now.Sub(request.Since) > startLimit && (view.Pod == nil || view.Pod.Status.Phase == corev1.PodPending):
		message := fmt.Sprintf("the upload's pod did not run within %s, so the upload has expired", startLimit)
		if why := blocked(view); why != "" {
			message += ": " + why
		}
		step.end(view, uploads.State{Phase: uploads.Failed, Message: message, Intact: true})
	case len(view.Others) > 0: // they may still write
	case view.Pod == nil:
		step.Create = Pod(view.Claim, view.Request, view.Facts)
	case view.Pod.Status.Phase == corev1.PodPending:
		step.say(view, waits(view.Pod))
		step.RequeueAfter = max(startLimit-view.Now.Sub(request.Since), 0) + time.Second
	}
	return step
}

// blocked returns what is known about why no pod runs.
func blocked(view View) string {
	if view.Pod != nil {
		return waits(view.Pod)
	}
	if view.State != nil {
		return view.State.Message
	}
	return ""
}

// say sets the state of an upload whose pod does not run.
func (s *Step) say(view View, message string) {
	message = uploads.OneLine(message)
	if message == "" || view.State != nil && view.State.Message == message {
		return
	}
	s.Say = &uploads.State{ID: view.Request.ID, Phase: uploads.Pending, Size: view.Request.Size, Message: message}
}

// end sets the last state of an upload.
func (s *Step) end(view View, state uploads.State) {
	state.ID = view.Request.ID
	state.Intact = state.Intact && !view.Request.Incomplete
	if view.Request.ContainerDisk == nil { // else the pod alone knows it
		state.Size = view.Request.Size
	}
	state.Ended = view.Now.UTC().Truncate(time.Second)
	state.Message = uploads.OneLine(state.Message)
	s.End = &state
	if state.Phase == uploads.Succeeded {
		s.Labels = view.Request.Labels
	}
}

// Exit codes of a process that SIGKILL or SIGTERM has ended.
const (
	killed     = 128 + 9
	terminated = 128 + 15
)

// endOf reads how an upload ended. A pod counts as taken over by the image: that it succeeded must be in its exit code
// and in its message. Without a word of its own it was interrupted if somebody else has ended it.
func endOf(pod *corev1.Pod) uploads.State {
	failed := uploads.State{Phase: uploads.Failed}
	for i := range pod.Status.ContainerStatuses {
		ended := pod.Status.ContainerStatuses[i].State.Terminated
		if pod.Status.ContainerStatuses[i].Name != names.ContainerCompute || ended == nil {
			continue
		}
		state := uploads.ParseState([]byte(ended.Message))
		switch {
		case state != nil && state.Phase == uploads.Succeeded && ended.ExitCode == 0 &&
			pod.Status.Phase == corev1.PodSucceeded && state.Received == state.Size && state.SHA256 != "":
			return *state
		case state != nil && state.Phase == uploads.Failed:
			return *state
		case ended.Reason == "OOMKilled":
			failed.Message = "the upload's pod needed more memory than it may have: the image is damaged, or " +
				"compressed so that it takes much memory"
			return failed
		}
		failed.Message = fmt.Sprintf("the upload's pod has ended with code %d: repeat the upload", ended.ExitCode)
		failed.Interrupted = ended.ExitCode == killed || ended.ExitCode == terminated
	}
	failed.Interrupted = failed.Interrupted || pod.Status.Reason != ""
	if pod.Status.Message != "" || failed.Message == "" {
		failed.Message = fmt.Sprintf("the upload's pod has ended (%s), so repeat the upload: %s",
			cmp.Or(pod.Status.Reason, "no reason was given"), pod.Status.Message)
	}
	return failed
}

// waits returns why a pod does not run yet, or "" when no reason is worth reporting.
func waits(pod *corev1.Pod) string {
	scheduled := conditions.Find(pod.Status.Conditions, corev1.PodScheduled)
	if scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return "the upload's pod waits for a node: " + scheduled.Message
	}
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil && w.Message != "" {
			return fmt.Sprintf("the upload's pod does not start (%s): %s", w.Reason, w.Message)
		}
	}
	return ""
}

// alive returns pods that are not being deleted.
func alive(pods ...*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range pods {
		if pod != nil && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out
}
