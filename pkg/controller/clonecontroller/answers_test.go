package clonecontroller

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// TestMade: what the answers to creations change of a step.
func TestMade(t *testing.T) {
	kind := schema.GroupResource{Resource: "things"}
	quota := apierrors.NewForbidden(kind, "x", errors.New("exceeded quota"))
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "x", nil)
	webhook, busy := apierrors.NewBadRequest("a webhook said no"), errors.New("connection refused")
	taken, unable := apierrors.NewAlreadyExists(kind, "x"), apierrors.NewInternalError(errors.New("no answer"))
	closed := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: names.ReasonGateClosed,
		Message: "not enabled",
	}}
	named := metav1.ObjectMeta{Name: "x"}
	snapshot := func(s *Step, v *View, err error) error {
		s.CreateSnapshot = &v1beta1.VirtualMachineSnapshot{ObjectMeta: named}
		return s.madeSnapshot(v, err)
	}
	copied := func(s *Step, v *View, err error) error {
		return s.madeCopy(v, &corev1.PersistentVolumeClaim{ObjectMeta: named}, err)
	}
	restore := func(s *Step, v *View, err error) error {
		s.CreateRestore = &v1beta1.VirtualMachineRestore{ObjectMeta: named}
		return s.madeRestore(v, err)
	}
	const forbidden = `things "x" is forbidden: exceeded quota`
	for name, tc := range map[string]struct {
		made func(*Step, *View, error) error
		err  error
		// want is the error, says what the clone's conditions say, and fails that the clone has failed.
		want, says string
		fails      bool
		deleted    bool
	}{
		"snapshot made":     {made: snapshot},
		"snapshot is there": {made: snapshot, err: taken},
		"snapshot refused": {
			made: snapshot, err: quota, want: "failed creating snapshot x for clone c: " + forbidden,
			says: "failed creating snapshot x for clone c: " + forbidden,
		},
		"snapshot, no answer": {
			made: snapshot, err: busy, want: "failed creating snapshot x for clone c: connection refused",
		},
		"copy made":     {made: copied},
		"copy is there": {made: copied, err: taken, want: frame.ErrStale.Error()},
		"copy refused": {
			made: copied, err: quota, want: "failed creating *v1.PersistentVolumeClaim x for clone c: " + forbidden,
			says: "failed creating *v1.PersistentVolumeClaim x for clone c: " + forbidden,
		},
		"copy invalid": {
			made: copied, err: invalid, fails: true,
			says: `failed creating *v1.PersistentVolumeClaim x for clone c: Thing "x" is invalid`,
		},
		"copy refused by a webhook": {
			made: copied, err: webhook, fails: true,
			says: "failed creating *v1.PersistentVolumeClaim x for clone c: a webhook said no",
		},
		"copy refused for a gate": {
			made: copied, err: closed,
			want: "failed creating *v1.PersistentVolumeClaim x for clone c: not enabled",
			says: "failed creating *v1.PersistentVolumeClaim x for clone c: not enabled",
		},
		"copy, and a webhook could not look": {
			made: copied, err: unable,
			want: "failed creating *v1.PersistentVolumeClaim x for clone c: " + unable.Error(),
		},
		"copy refused, and the clone is deleted": {
			made: copied, err: quota, deleted: true,
			want: "failed creating *v1.PersistentVolumeClaim x for clone c: " + forbidden,
		},
		"restore made":     {made: restore},
		"restore is there": {made: restore, err: taken},
		"restore refused": {
			made: restore, err: quota, want: "failed creating restore x for clone c: " + forbidden,
			says: "failed creating restore x for clone c: " + forbidden,
		},
		"restore invalid": {
			made: restore, err: invalid, fails: true,
			says: `failed creating restore x for clone c: Thing "x" is invalid`,
		},
		"restore refused for a gate": {
			made: restore, err: closed, want: "failed creating restore x for clone c: not enabled",
			says: "failed creating restore x for clone c: not enabled",
		},
		"restore refused by a webhook": {
			made: restore, err: webhook, fails: true, says: "failed creating restore x for clone c: a webhook said no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := viewOf(clonev1beta1.RestoreInProgress)
			view.Clone.Name = "c"
			if tc.deleted {
				view.Clone.DeletionTimestamp = &metav1.Time{Time: view.Now}
			}
			step := Step{Status: view.phase(clonev1beta1.RestoreInProgress)}
			planned := step.Status
			err := tc.made(&step, view, tc.err)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("error %v", err)
			}
			status := step.refused
			if tc.fails {
				status = step.Status
				if len(step.Events) != 1 || step.Events[0].Reason != reasonRestoreFailed ||
					status.Phase != clonev1beta1.Failed {
					t.Errorf("events %v, phase %s", step.Events, status.Phase)
				}
			} else if step.Status != planned || len(step.Events) > 0 {
				t.Errorf("status %+v, events %v", step.Status, step.Events)
			}
			says := ""
			if status != nil && len(status.Conditions) > 0 {
				says = status.Conditions[0].Message
			}
			if says != tc.says {
				t.Errorf("says %q", says)
			}
		})
	}
}
