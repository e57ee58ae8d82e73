package clone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestRow says what a clone is of, what it has made, and how far it is.
func TestRow(t *testing.T) {
	o := New("default", "c", Options{Source: "demo", Target: "copy"})
	if r := Row(o); r.Machine != "demo" || r.Of != "" || r.Target != "copy" || r.Phase != "Pending" || r.Ended ||
		r.Health != store.Busy {
		t.Errorf("of a VM: %+v", r)
	}
	o.Status.SnapshotName, o.Status.RestoreName, o.Status.TargetName = new("tmp-snapshot"), new("tmp-restore"),
		new("copy-2")
	o.Status.Phase = clonev1beta1.RestoreInProgress
	o.Status.Conditions = []clonev1beta1.Condition{
		{Type: clonev1beta1.ConditionProgressing, Status: corev1.ConditionTrue, Message: "restoring"},
	}
	if r := Row(o); r.Of != "tmp-snapshot" || r.Restore != "tmp-restore" || r.Target != "copy-2" ||
		r.Stage != "restoring" || r.Trouble != "" || r.Ended || len(r.Conditions) != 1 {
		t.Errorf("under way: %+v", r)
	}
	o = New("default", "c", Options{Source: "snap", FromSnapshot: true, Target: "copy"})
	o.Status.Phase = clonev1beta1.Failed
	o.Status.Conditions = []clonev1beta1.Condition{
		{Type: clonev1beta1.ConditionReady, Status: corev1.ConditionFalse, Message: "the source is gone"},
	}
	if r := Row(o); r.Machine != "" || r.Of != "snap" || r.Trouble != "the source is gone" || !r.Ended ||
		r.Health != store.Bad {
		t.Errorf("failed: %+v", r)
	}
	o.Status.Phase = clonev1beta1.Succeeded
	if r := Row(o); r.Trouble != "" || r.Stage != "" || !r.Ended || r.Health != store.Well {
		t.Errorf("done: %+v", r)
	}
}
