package replicasetcontroller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

func TestOutcome(t *testing.T) {
	vmis := schema.GroupResource{Resource: "virtualmachineinstances"}
	terminating := apierrors.NewForbidden(vmis, "a", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota, busy := errors.New("quota"), errors.New("busy")
	for name, tc := range map[string]struct {
		creation, deletion error
		made               []*v1.VirtualMachineInstance
		stops              bool
		replicas           int32
		failure            Failure
		err                string
	}{
		"all done": {made: members("new", "newer"), replicas: 3},
		"one is not made": {
			creation: quota, made: []*v1.VirtualMachineInstance{member("new"), nil}, replicas: 2,
			failure: Failure{ReasonFailedCreate, "quota"}, err: "create VMI: quota",
		},
		"the namespace goes": {
			creation: terminating, made: []*v1.VirtualMachineInstance{nil, nil}, stops: true, replicas: 1,
		},
		"one is not deleted": {deletion: busy, replicas: 1, failure: Failure{ReasonFailedDelete, "busy"}, err: "busy"},
		"neither": {
			creation: quota, deletion: busy, replicas: 1, failure: Failure{ReasonFailedCreate, "quota"},
			err: "create VMI: quota\nbusy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out outcome
			goes := out.created(tc.made, tc.creation)
			if goes == tc.stops {
				t.Errorf("goes on: %t", goes)
			}
			if goes {
				out.deleted(tc.deletion)
			}
			if got := out.err; tc.err == "" && got != nil || tc.err != "" && (got == nil || got.Error() != tc.err) {
				t.Errorf("error %v", got)
			}
			view := View{Set: newSet(3), Selector: labels.Everything(), VMIs: members("a ready", "b ready"), Now: now}
			status := out.status(view, func(vmi client.Object) bool { return vmi.GetName() == "b" }, now)
			failure := Failure{}
			if c := conditions.Find(status.Conditions, v1.VirtualMachineInstanceReplicaSetReplicaFailure); c != nil {
				failure = Failure{c.Reason, c.Message}
			}
			if status.Replicas != tc.replicas || status.ReadyReplicas != 1 || failure != tc.failure {
				t.Errorf("%d replicas, %d ready, %+v", status.Replicas, status.ReadyReplicas, failure)
			}
			if len(view.VMIs) != 2 || view.VMIs[1] == nil {
				t.Error("the view was changed")
			}
		})
	}
}
