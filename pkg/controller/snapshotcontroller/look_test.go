package snapshotcontroller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A content that was made a moment ago, which the cache does not show yet, is deleted with its snapshot: nobody would
// delete it later.
func TestContentBehindTheCache(t *testing.T) {
	for name, test := range map[string]struct {
		phase          v1beta1.VirtualMachineSnapshotPhase
		age            time.Duration
		deleted        bool
		cached, exists bool
		want           bool
	}{
		"deleted":               {phase: v1beta1.InProgress, deleted: true, exists: true, want: true},
		"deleted, and is ready": {phase: v1beta1.Succeeded, deleted: true, exists: true, want: true},
		"deleted, has none":     {phase: v1beta1.InProgress, deleted: true},
		"deleted, cached":       {phase: v1beta1.InProgress, deleted: true, cached: true, exists: true, want: true},
		"after the deadline":    {phase: v1beta1.InProgress, age: time.Hour, exists: true, want: true},
		"goes on":               {phase: v1beta1.InProgress, exists: true}, // its event comes
		"failed":                {phase: v1beta1.Failed, age: time.Hour, exists: true},
	} {
		snapshot := inPhase(test.phase, test.age, test.deleted)
		snapshot.Spec.Source.Kind, snapshot.Spec.Source.Name = snapshots.SourceKind, "demo"
		snapshot.Finalizers = []string{snapshots.SnapshotFinalizer}
		have := func(is bool) (objects []client.Object) {
			if is {
				objects = append(objects, &v1beta1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{
					Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot), UID: "c",
				}})
			}
			return objects
		}
		cache := newSite(t, -1, savedmemory.Saved{}, have(test.cached)...)
		r := &Reconciler{
			Client: cache, Live: newSite(t, -1, savedmemory.Saved{}, have(test.exists)...),
			Now: func() time.Time { return now }, writes: frame.NewWrites(cache),
		}
		view, err := r.look(t.Context(), snapshot) // of a VM that is gone
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if step := Next(view); (view.Content != nil) != test.want || step.DeleteContent != test.want {
			t.Errorf("%s: content %v, step %+v", name, view.Content, step)
		}
	}
}
