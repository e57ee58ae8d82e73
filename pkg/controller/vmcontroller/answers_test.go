package vmcontroller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
)

// saying has a VM that tells of a failure.
func saying(message string) *v1.VirtualMachine {
	return testVM(v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Status.Conditions = []v1.VirtualMachineCondition{{
			Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Message: message,
		}}
	})
}

func TestMadeDataVolume(t *testing.T) {
	kind := schema.GroupResource{Resource: "datavolumes"}
	terminating := apierrors.NewForbidden(kind, "a", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	const full = `DataVolume "a" cannot be made: full`
	for name, tc := range map[string]struct {
		err             error
		said            string
		reason, failure string
		events          []vmicontroller.Event
	}{
		"made": {events: []vmicontroller.Event{{
			Type: corev1.EventTypeNormal, Reason: reasonCreatedDataVolume, Message: "Created DataVolume a",
		}}},
		"there already":  {err: apierrors.NewAlreadyExists(kind, "a")},
		"namespace goes": {err: terminating},
		"refused": {
			err: errors.New("full"), reason: reasonFailedDataVolume, failure: full,
			events: []vmicontroller.Event{{
				Type: corev1.EventTypeWarning, Reason: reasonFailedDataVolume, Message: full,
			}},
		},
		"refused, which was said": {
			err: errors.New("full"), said: full, reason: reasonFailedDataVolume, failure: full,
		},
		"not allowed": {
			err:  fmt.Errorf("ask: %w", &cdi.DeniedError{Account: "ns/default", Reason: "no"}),
			said: "another", reason: reasonUnauthorized,
			failure: `DataVolume "a" cannot be made: ask: no; give service account "ns/default" the right to create ` +
				"datavolumes/source (cdi.kubevirt.io) there, or clone from the VM's own namespace",
			events: []vmicontroller.Event{{
				Type: corev1.EventTypeWarning, Reason: reasonUnauthorized,
				Message: `DataVolume "a" cannot be made: ask: no; give service account "ns/default" the right to ` +
					"create datavolumes/source (cdi.kubevirt.io) there, or clone from the VM's own namespace",
			}},
		},
	} {
		step := Step{After: View{VM: saying(tc.said), DataVolumes: map[string]*cdiv1.DataVolume{}}}
		events := step.madeDataVolume(dataVolume("a", "", false), tc.err)
		if diff := cmp.Diff(tc.events, events); diff != "" {
			t.Errorf("%s: events\n%s", name, diff)
		}
		after := step.After
		if after.Failure != tc.failure || after.FailureReason != tc.reason || (after.DataVolumes["a"] != nil) !=
			(tc.err == nil) || (step.RequeueAfter == retryMissing) != (tc.failure != "") {
			t.Errorf("%s: %s %q, again in %s", name, after.FailureReason, after.Failure, step.RequeueAfter)
		}
	}
}

func TestMadeVMI(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		said   string
		events []vmicontroller.Event
	}{
		"made": {events: []vmicontroller.Event{{
			Type: corev1.EventTypeNormal, Reason: vmicontroller.ReasonSuccessfulCreate,
			Message: "Started the virtual machine by creating the new virtual machine instance demo",
		}}},
		"refused": {err: errors.New("quota"), events: []vmicontroller.Event{{
			Type: corev1.EventTypeWarning, Reason: vmicontroller.ReasonFailedCreate,
			Message: "Error creating virtual machine instance: quota",
		}}},
		"refused, which was said": {err: errors.New("quota"), said: "create VMI: quota"},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
		step := Step{Create: vmi, After: View{VM: saying(tc.said)}}
		if diff := cmp.Diff(tc.events, step.madeVMI(tc.err)); diff != "" {
			t.Errorf("%s: events\n%s", name, diff)
		}
		if tc.err == nil {
			if step.After.VMI != vmi || step.failed != nil || step.After.Failure != "" {
				t.Errorf("%s: VMI %v, %v", name, step.After.VMI, step.failed)
			}
			continue
		}
		if step.After.VMI != nil || step.After.FailureReason != vmicontroller.ReasonFailedCreate ||
			step.After.Failure != "create VMI: quota" || !errors.Is(step.failed, tc.err) {
			t.Errorf("%s: %s %q, %v", name, step.After.FailureReason, step.After.Failure, step.failed)
		}
	}
}

func TestKeeps(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	w.VMI = nil
	w.typed()
	wanted := Next(w.View).Revisions[0]
	other := wanted.DeepCopy()
	other.Data.Raw = []byte(strings.Replace(string(other.Data.Raw), `"guest":2`, `"guest":3`, 1))
	for name, there := range map[string]*appsv1.ControllerRevision{"the same": wanted.DeepCopy(), "another": other} {
		step := Next(w.View)
		same := name == "the same"
		if step.Create == nil || step.keeps(there, wanted) != same {
			t.Errorf("%s: not told apart", name)
		}
		after := step.After
		if (step.Create != nil) != same || after.Referred != same || (after.InstancetypeRef != nil) != same ||
			(after.Failure == "") != same || (step.Decision.Action == Create) != same ||
			(step.RequeueAfter == retryMissing) == same {
			t.Errorf("%s: %+v", name, step)
		}
		if same {
			continue
		}
		const why = "error encountered while storing instancetype.kubevirt.io controllerRevisions: found existing " +
			"ControllerRevision with unexpected data, demo-small-v1beta1-it-1; delete it"
		if after.FailureReason != vmicontroller.ReasonFailedCreate || after.Failure != why {
			t.Errorf("%s %q", after.FailureReason, after.Failure)
		}
	}
}
