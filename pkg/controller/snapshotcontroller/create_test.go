package snapshotcontroller

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// What a content is made of: the claims that can be snapshotted, the snapshot's own ControllerRevisions, and a record
// of the freeze of a guest that there is something to freeze for.
func TestNewContent(t *testing.T) {
	for name, test := range map[string]struct {
		phase           v1.VirtualMachineInstancePhase
		claims          []string
		memory          bool
		record, include bool
	}{
		"off":                      {claims: []string{"a"}},
		"runs":                     {phase: v1.Running, claims: []string{"a", "b"}, record: true},
		"runs, without claims":     {phase: v1.Running},
		"has no node":              {phase: v1.Scheduling, claims: []string{"a"}},
		"runs, with its memory":    {phase: v1.Running, claims: []string{"a"}, memory: true, include: true},
		"shut down, not restarted": {phase: v1.Succeeded, claims: []string{"a"}},
	} {
		view := View{Snapshot: snapshotAged(time.Minute), Now: now, Volumes: []snapshots.Volume{{
			Name: "left-out", Reason: "no class",
		}}}
		view.Snapshot.Spec.Source.Name = "demo"
		if test.phase != "" {
			view.VMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "guest"}}
			view.VMI.Status.Phase = test.phase
		}
		if test.memory {
			view.Snapshot.Annotations = map[string]string{savedmemory.IncludeAnnotation: "true"}
		}
		of := originals{vm: &v1beta1.VirtualMachine{Spec: v1.VirtualMachineSpec{
			Instancetype: &v1.InstancetypeMatcher{RevisionName: "demo-small-1"},
		}}}
		for _, claim := range test.claims {
			view.Volumes = append(view.Volumes, snapshots.Volume{Name: "volume-" + claim, Claim: claim})
			of.claims = append(of.claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: claim, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			}})
		}
		got, err := newContent(view, of)
		if err != nil {
			t.Fatal(err)
		}
		record := recordOf(got.Annotations)
		if (record != nil) != test.record || record != nil && (record.Guest != "guest" || record.Thawed) {
			t.Errorf("%s: record %+v", name, record)
		}
		if (got.Annotations[savedmemory.IncludeAnnotation] == "true") != test.include {
			t.Errorf("%s: annotations %v", name, got.Annotations)
		}
		if vm := got.Spec.Source.VirtualMachine; vm.Spec.Instancetype.RevisionName != "snap-small-1" ||
			of.vm.Spec.Instancetype.RevisionName != "demo-small-1" {
			t.Errorf("%s: revision %+v, of %+v", name, vm.Spec.Instancetype, of.vm.Spec.Instancetype)
		}
		if len(got.Spec.VolumeBackups) != len(test.claims) {
			t.Errorf("%s: volumes %+v", name, got.Spec.VolumeBackups)
			continue
		}
		for i, claim := range test.claims {
			backup := got.Spec.VolumeBackups[i]
			if backup.VolumeName != "volume-"+claim || backup.PersistentVolumeClaim.Name != claim ||
				*backup.VolumeSnapshotName != "vmsnapshot-s-volume-volume-"+claim ||
				backup.PersistentVolumeClaim.ManagedFields != nil || of.claims[i].ManagedFields == nil {
				t.Errorf("%s: volume %+v", name, backup)
			}
		}
	}
	snapshot := snapshotAged(time.Minute)
	snapshot.Spec.Source.Name = "demo"
	copied := copyOf(&appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "demo-small-1"}}, snapshot)
	if copied.Name != "snap-small-1" || !metav1.IsControlledBy(copied, snapshot) {
		t.Errorf("copy %+v", copied)
	}
}

// A content that a quota refuses is said so; what another try may not meet is not.
func TestRefusedContent(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{}, "content", errors.New("exceeded quota"))
	before := metav1.NewTime(now.Add(-time.Hour))
	text := quota.Error()
	for name, test := range map[string]struct {
		err  error
		was  *v1beta1.Error
		want bool
		same bool
	}{
		"a quota":      {err: quota, want: true},
		"a quota yet":  {err: quota, was: &v1beta1.Error{Time: &before, Message: &text}, want: true, same: true},
		"invalid":      {err: apierrors.NewInvalid(schema.GroupKind{}, "content", nil), want: true},
		"a conflict":   {err: apierrors.NewConflict(schema.GroupResource{}, "content", errors.New("changed"))},
		"out of reach": {err: context.DeadlineExceeded},
	} {
		step := Step{Status: &v1beta1.VirtualMachineSnapshotStatus{Error: test.was}}
		got := step.refused(View{Now: now}, test.err)
		if (got != nil) != test.want {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if got != nil && (*got.Error.Message != test.err.Error() || got.Error.Time.Equal(&before) != test.same) {
			t.Errorf("%s: %+v", name, got.Error)
		}
	}
}
