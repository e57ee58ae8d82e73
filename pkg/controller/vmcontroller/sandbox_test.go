package vmcontroller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const sandboxEvents = "default: involvedObject.uid=uid,reason=FailedCreatePodSandBox"

// eventReader has the events of a pod; it notes how it was asked.
type eventReader struct {
	client.Reader
	events []corev1.Event
	err    error
	asked  []string
}

func (r *eventReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	selectors := strings.Split(o.FieldSelector.String(), ",")
	slices.Sort(selectors)
	r.asked = append(r.asked, o.Namespace+": "+strings.Join(selectors, ","))
	list.(*corev1.EventList).Items = r.events
	return r.err
}

// Of a pod that has a node for long, and no sandbox, the kubelet's events are asked for, and the VM's condition Failure
// has the newest one until there is a sandbox.
func TestSandbox(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	id := strings.Repeat("0a", 32)
	said := func(at time.Duration, message string) corev1.Event {
		return corev1.Event{LastTimestamp: metav1.NewTime(now.Add(-at)), Message: message}
	}
	full := []corev1.Event{
		said(time.Minute, "an older one"),
		said(time.Second, `(combined from similar events): Failed to create pod sandbox: network for sandbox "`+id+
			`": no IP addresses available in range set: 192.0.2.1-192.0.2.1`),
		said(time.Hour, "the oldest one"),
	}
	const message = `Failed to create pod sandbox: network for sandbox "…": no IP addresses available in range set: ` +
		`192.0.2.1-192.0.2.1`
	condition := func(t corev1.PodConditionType, s corev1.ConditionStatus, since time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: s, LastTransitionTime: metav1.NewTime(now.Add(-since))}
	}
	bound := condition(corev1.PodScheduled, corev1.ConditionTrue, time.Minute)
	bare := condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse, time.Minute)
	for name, tc := range map[string]struct {
		conditions []corev1.PodCondition
		phase      corev1.PodPhase
		vmi        v1.VirtualMachineInstancePhase
		events     []corev1.Event
		asked      bool
		in         time.Duration
		want       string
	}{
		"without a node": {
			conditions: []corev1.PodCondition{condition(corev1.PodScheduled, corev1.ConditionFalse, time.Hour)},
			phase:      corev1.PodPending, vmi: v1.Scheduling, events: full,
		},
		"for a moment": {
			conditions: []corev1.PodCondition{
				condition(corev1.PodScheduled, corev1.ConditionTrue, 5*time.Second), bare,
			},
			phase: corev1.PodPending, vmi: v1.Scheduled, events: full, in: 15 * time.Second,
		},
		"for long": {
			conditions: []corev1.PodCondition{bound, bare}, phase: corev1.PodPending, vmi: v1.Scheduled, events: full,
			asked: true, in: retryMissing, want: message,
		},
		"for long, without a word": {
			conditions: []corev1.PodCondition{bound, bare}, phase: corev1.PodPending, vmi: v1.Scheduled,
			asked: true, in: retryMissing,
		},
		"which pulls an image": {
			conditions: []corev1.PodCondition{bound}, phase: corev1.PodPending, vmi: v1.Scheduled, events: full,
		},
		"which runs": {
			conditions: []corev1.PodCondition{bound}, phase: corev1.PodRunning, vmi: v1.Running, events: full,
		},
		"of a guest that has ended": {
			conditions: []corev1.PodCondition{bound, bare}, phase: corev1.PodPending, vmi: v1.Failed, events: full,
		},
	} {
		vm := testVM(v1.RunStrategyAlways)
		instance, err := Instance(vm, false)
		if err != nil {
			t.Fatal(err)
		}
		instance.Status.Phase = tc.vmi
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "uid"}}
		pod.Status.Phase, pod.Status.Conditions = tc.phase, tc.conditions
		view := View{VM: vm, VMI: instance, Pods: []*corev1.Pod{pod}, Now: now, Filled: true}
		reader := &eventReader{events: tc.events}
		(&Reconciler{Live: reader}).lookAtSandbox(t.Context(), &view)
		if (len(reader.asked) == 1) != tc.asked || tc.asked && reader.asked[0] != sandboxEvents {
			t.Errorf("%s: asked for %q", name, reader.asked)
		}
		if view.Sandbox != tc.want || view.SandboxIn != tc.in {
			t.Errorf("%s: %q, again in %v; want %q, %v", name, view.Sandbox, view.SandboxIn, tc.want, tc.in)
		}
		failure := ""
		for _, c := range Status(view, Decision{}).Conditions {
			if c.Type == v1.VirtualMachineFailure {
				failure = c.Reason + ": " + c.Message
			}
		}
		if want := map[bool]string{true: "FailedCreatePodSandBox: " + tc.want}[tc.want != ""]; failure != want {
			t.Errorf("%s: the condition is %q, want %q", name, failure, want)
		}
		step := Step{After: view}
		if step.again(); step.RequeueAfter != tc.in {
			t.Errorf("%s: looks again in %v, want %v", name, step.RequeueAfter, tc.in)
		}
		if tc.asked {
			without := View{VM: vm, VMI: instance, Pods: []*corev1.Pod{pod}, Now: now, Filled: true}
			(&Reconciler{Live: &eventReader{err: errors.New("refused")}}).lookAtSandbox(t.Context(), &without)
			if without.Sandbox != "" || without.SandboxIn != tc.in {
				t.Errorf("%s: refused, %q, again in %v", name, without.Sandbox, without.SandboxIn)
			}
		}
	}
	long := lastSandbox([]corev1.Event{{Message: strings.Repeat("é", sandboxMessage) + "the cause"}})
	if !strings.HasSuffix(long, "the cause") || len(long) > sandboxMessage+len("…") || strings.ContainsRune(long, '�') {
		t.Errorf("a long message becomes %q", long)
	}
}
