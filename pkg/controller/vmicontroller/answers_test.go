package vmicontroller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// terminating is the API server's answer to a creation in a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("x"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestPodRefused(t *testing.T) {
	said := notSynchronized(ReasonFailedCreate, "create pod: quota")
	for name, tc := range map[string]struct {
		err    error
		before []v1.VirtualMachineInstanceCondition
		want   string
		events []Event
	}{
		"recorded":       {err: fmt.Errorf("create: %w", ErrRecorded)},
		"namespace gone": {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")},
		"namespace goes": {err: terminating()},
		"refused": {
			err: errors.New("quota"), want: "create pod: quota",
			events: []Event{{corev1.EventTypeWarning, ReasonFailedCreate, "create pod: quota"}},
		},
		"refused, which was said": {
			err: errors.New("quota"), want: "create pod: quota",
			before: []v1.VirtualMachineInstanceCondition{said},
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{VMI: testVMI(t, v1.VmPhaseUnset), Now: now}
			step := Step{Status: *view.VMI.Status.DeepCopy()}
			step.Status.Conditions = tc.before
			err := step.podRefused(view, tc.err)
			if tc.want == "" {
				if err != nil || step.Status.Phase != v1.VmPhaseUnset || len(step.Status.Conditions) > 0 {
					t.Errorf("%v, status %+v", err, step.Status)
				}
			} else if err == nil || err.Error() != tc.want || !errors.Is(err, tc.err) ||
				step.Status.Phase != v1.Pending {
				t.Errorf("error %v, phase %s", err, step.Status.Phase)
			} else if c := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceSynchronized); c == nil ||
				c.Message != tc.want {
				t.Errorf("condition %+v", c)
			}
			if diff := cmp.Diff(tc.events, step.Events); diff != "" {
				t.Errorf("events\n%s", diff)
			}
		})
	}
}

func TestStateRefused(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	vmi := testVMI(t, v1.Pending, ownedByVM)
	its := StateClaim(vmi, config.Config{})
	unlabelled, going := its.DeepCopy(), its.DeepCopy()
	unlabelled.Labels, going.DeletionTimestamp = nil, new(at(0))
	taken := apierrors.NewAlreadyExists(claims, its.Name)
	others := "create the claim of the persistent state: PersistentVolumeClaim " + its.Name + " exists already and " +
		"is not for this VMI's state: it is being deleted, or lacks the label " + vmstate.Prefix
	for name, tc := range map[string]struct {
		there *corev1.PersistentVolumeClaim
		err   error
		want  string
		// reason is the condition's, FailedCreate where it is not said.
		reason string
	}{
		"namespace gone":      {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")},
		"namespace goes":      {err: terminating()},
		"made a moment ago":   {err: taken},
		"is there":            {there: its, err: taken},
		"another has it":      {there: unlabelled, err: taken, want: others, reason: names.ReasonStateClaimTaken},
		"it is being deleted": {there: going, err: taken, want: others, reason: names.ReasonStateClaimTaken},
		"refused":             {err: errors.New("quota"), want: "create the claim of the persistent state: quota"},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{VMI: vmi, Now: now}
			step := Step{Status: *vmi.Status.DeepCopy()}
			err := step.stateRefused(view, tc.there, tc.err)
			said := ""
			if c := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceSynchronized); c != nil {
				said = c.Message
				if (tc.reason == "") != (c.Reason == ReasonFailedCreate) || tc.reason != "" && c.Reason != tc.reason {
					t.Errorf("reason %s, want %q", c.Reason, tc.reason)
				}
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) ||
				said != tc.want {
				t.Errorf("error %v, condition %q", err, said)
			}
		})
	}
}

func TestAttached(t *testing.T) {
	pod := attachPod("a", false)
	const failure = "create attachment pod of volume data: quota"
	named := &v1.HotplugVolumeStatus{AttachPodName: pod.Name, AttachPodUID: pod.UID}
	created := []Event{{
		corev1.EventTypeNormal, ReasonSuccessfulCreate, "Created hotplug attachment pod hp-a, for volume data",
	}}
	for name, tc := range map[string]struct {
		err          error
		before, want v1.VolumeStatus
		events       []Event
	}{
		"made": {
			before: v1.VolumeStatus{Reason: hotplug.ReasonMissingAttachmentPod, Message: messageAttachmentPodIsMissing},
			want: v1.VolumeStatus{
				Reason: hotplug.ReasonAttachmentPodNotReady, Message: "Waiting for attachment pod hp-a to run",
				HotplugVolume: named,
			},
			events: created,
		},
		"made anew, while the guest has the disk": {
			before: v1.VolumeStatus{Reason: ReasonSuccessfulCreate, Message: "ready"},
			want:   v1.VolumeStatus{Reason: ReasonSuccessfulCreate, Message: "ready", HotplugVolume: named},
			events: created,
		},
		"refused": {
			err:    errors.New("quota"),
			before: v1.VolumeStatus{Reason: hotplug.ReasonMissingAttachmentPod, Message: messageAttachmentPodIsMissing},
			want:   v1.VolumeStatus{Reason: hotplug.ReasonMissingAttachmentPod, Message: failure},
			events: []Event{{corev1.EventTypeWarning, ReasonFailedCreate, failure}},
		},
		"refused, which was said": {
			err:    errors.New("quota"),
			before: v1.VolumeStatus{Reason: hotplug.ReasonMissingAttachmentPod, Message: failure},
			want:   v1.VolumeStatus{Reason: hotplug.ReasonMissingAttachmentPod, Message: failure},
		},
		"refused, while the guest has the disk": {
			err:    errors.New("quota"),
			before: v1.VolumeStatus{Reason: ReasonSuccessfulCreate, Message: "ready"},
			want:   v1.VolumeStatus{Reason: ReasonSuccessfulCreate, Message: "ready"},
			events: []Event{{corev1.EventTypeWarning, ReasonFailedCreate, failure}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.before.Name, tc.want.Name = "data", "data"
			other := v1.VolumeStatus{Name: "other", Reason: hotplug.ReasonMissingAttachmentPod}
			step := Step{}
			step.Status.VolumeStatus = []v1.VolumeStatus{other, tc.before}
			err := step.attached("data", pod, tc.err)
			if (err != nil) != (tc.err != nil) || err != nil && err.Error() != failure {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff([]v1.VolumeStatus{other, tc.want}, step.Status.VolumeStatus); diff != "" {
				t.Errorf("status\n%s", diff)
			}
			if diff := cmp.Diff(tc.events, step.Events); diff != "" {
				t.Errorf("events\n%s", diff)
			}
		})
	}
}
