package resizecontroller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

func TestResized(t *testing.T) {
	refusal := func(text string, causes ...metav1.StatusCause) error {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New(text))
		err.ErrStatus.Details.Causes = causes
		return fmt.Errorf("patch: %w", err)
	}
	capacity := refusal("too large", metav1.StatusCause{Type: causeNodeCapacity})
	const begin = `Pod p cannot grow on node node1: patch: pods "p" is forbidden: `
	for name, tc := range map[string]struct {
		err             error
		migratable      corev1.ConditionStatus
		reason, message string
		migrate         bool
		again           time.Duration
	}{
		"the node is too small": {
			err: capacity, migratable: corev1.ConditionTrue, migrate: true,
			reason: sizing.ReasonNoRoom, message: begin + "too large. The guest moves to a pod of the size.",
		},
		"and the guest cannot move": {
			err: capacity, migratable: corev1.ConditionFalse, again: again, reason: sizing.ReasonRestart,
			message: begin + "too large. Cannot migrate VMI, Reason: HostDevice, Message: it has one.",
		},
		"a quota": {
			err: refusal("exceeded quota"), migratable: corev1.ConditionTrue, again: again,
			reason: sizing.ReasonPodResizeRefused, message: begin + "exceeded quota.",
		},
		"another sentence about it": {
			err:        refusal("not allocatable", metav1.StatusCause{Type: "UnsupportedPlatform"}),
			migratable: corev1.ConditionTrue, again: again,
			reason: sizing.ReasonPodResizeRefused, message: begin + "not allocatable.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := guest(t, "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}")
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceIsMigratable, Status: tc.migratable, Reason: "HostDevice",
				Message: "it has one",
			}}
			view := View{
				VMI: vmi, Pod: pod(t, containerOf(small, small)+"]}"), Now: now,
				Want: requirements(t, "requests: "+large),
			}
			step := Next(view)
			if step.Resize == nil {
				t.Fatal("the API server is not asked")
			}
			if err := step.resized(view, tc.err); err != nil {
				t.Fatal(err)
			}
			view.VMI.Status = step.Status
			c := sizing.Resizing(view.VMI, cpus)
			if c == nil || c.Reason != tc.reason || c.Message != tc.message || (step.Migrate != "") != tc.migrate ||
				step.RequeueAfter != tc.again {
				t.Errorf("%+v, migrate %q, again %s", c, step.Migrate, step.RequeueAfter)
			}
			// virt-controller starts anew and knows what the condition says.
			if tc.reason != sizing.ReasonNoRoom {
				return
			}
			next := Next(view)
			if again := conditions.Find(next.Status.Conditions, cpus); *again != *c || next.Migrate != step.Migrate ||
				next.Resize != nil {
				t.Errorf("later: %+v, migrate %q, resize %v", again, next.Migrate, next.Resize)
			}
		})
	}
}

// TestResizedOtherwise: an answer that is no refusal changes nothing, and neither does the refusal of a smaller pod.
func TestResizedOtherwise(t *testing.T) {
	grown := guest(t, "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}")
	busy := errors.New("connection refused")
	for name, tc := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		err  error
		want string
	}{
		"done":                         {vmi: grown},
		"no answer":                    {vmi: grown, err: busy, want: "resize pod p: connection refused"},
		"it would have become smaller": {vmi: guest(t, "{}"), err: apierrors.NewBadRequest("no")},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{VMI: tc.vmi, Pod: pod(t, containerOf(small, small)+"]}"), Now: now}
			step := Step{Status: *tc.vmi.Status.DeepCopy()}
			err := step.resized(view, tc.err)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("error %v", err)
			}
			diff := cmp.Diff(tc.vmi.Status, step.Status)
			if diff != "" || step.Migrate != "" || step.RequeueAfter != 0 {
				t.Errorf("migrate %q, again %s, status\n%s", step.Migrate, step.RequeueAfter, diff)
			}
		})
	}
}

// TestApply: what is written, in order, by the answer to the request for more resources.
func TestApply(t *testing.T) {
	const asked, said = "patch resize of Pod p", "patch status of VirtualMachineInstance demo"
	for name, tc := range map[string]struct {
		answer error
		want   []string
		fails  bool
	}{
		"the pod grows": {want: []string{asked, said}},
		"its node is too small": {
			answer: &apierrors.StatusError{ErrStatus: metav1.Status{
				Reason: metav1.StatusReasonForbidden, Code: 403,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeNodeCapacity}}},
			}},
			want: []string{
				asked, "create VirtualMachineInstanceMigration kubevirt-workload-update-sj0tf812v5", said,
			},
		},
		"a quota": {
			answer: apierrors.NewBadRequest("no"),
			want:   []string{asked, said},
		},
		"no answer": {answer: errors.New("timeout"), want: []string{asked}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			server.Refuse(0, tc.answer)
			r := &Reconciler{Client: server, Recorder: record.NewFakeRecorder(9), writes: frame.NewWrites(server)}
			vmi := guest(t, "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}")
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
			}
			view := View{
				VMI: vmi, Pod: pod(t, containerOf(small, small)+"]}"), Now: now,
				Want: requirements(t, "requests: "+large),
			}
			step := Next(view)
			if err := r.apply(t.Context(), view, &step); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(server.Writes, tc.want) {
				t.Errorf("writes %q, want %q", server.Writes, tc.want)
			}
		})
	}
}
