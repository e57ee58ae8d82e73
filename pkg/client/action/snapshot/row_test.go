package snapshot

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

var at = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func condition(kind snapshotv1beta1.ConditionType, message string) snapshotv1beta1.Condition {
	return snapshotv1beta1.Condition{Type: kind, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: at}
}

// TestRows makes the rows of snapshots and restores at each of their stages.
func TestRows(t *testing.T) {
	yes, no, content := true, false, "content"
	for name, tc := range map[string]struct {
		row  *store.Snapshot
		want store.Snapshot
	}{
		"not looked at": {
			Row(snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) { s.Status = nil })),
			store.Snapshot{Phase: "Pending", Health: store.Busy},
		},
		"under way": {Row(snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
				Phase: snapshotv1beta1.InProgress, ReadyToUse: &no, VirtualMachineSnapshotContentName: &content,
				Conditions: []snapshotv1beta1.Condition{
					condition(snapshotv1beta1.ConditionProgressing, "Snapshotting"),
				},
			}
		})), store.Snapshot{Phase: "InProgress", Health: store.Busy, Stage: "Snapshotting", Content: content}},
		"taken": {
			Row(snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) {
				retain := snapshotv1beta1.VirtualMachineSnapshotContentRetain
				s.Spec.DeletionPolicy = &retain
				s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
					Phase: snapshotv1beta1.Succeeded, ReadyToUse: &yes, CreationTime: &at,
					SnapshotVolumes: &snapshotv1beta1.SnapshotVolumesLists{
						IncludedVolumes: []string{"root"}, ExcludedVolumes: []string{"scratch"},
					},
					SourceIndications: []snapshotv1beta1.SourceIndication{{Indication: "Online", Message: "It ran."}},
				}
			})),
			store.Snapshot{
				Phase: "Succeeded", Health: store.Well, Ready: true, Ended: true, Retain: true, Taken: at.Time,
				Included: []string{"root"}, Excluded: []string{"scratch"},
				Indications: [][2]string{{"Online", "It ran."}},
			},
		},
		"no longer there": {Row(snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{Phase: snapshotv1beta1.Succeeded, ReadyToUse: &no}
		})), store.Snapshot{Phase: "Succeeded", Health: store.Bad, Ended: true}},
		"failed": {Row(snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
				Phase: snapshotv1beta1.Failed, Error: &snapshotv1beta1.Error{Message: new("too late")},
			}
		})), store.Snapshot{Phase: "Failed", Health: store.Bad, Ended: true, Trouble: "too late"}},
		"a restore under way": {
			restoreRow(&snapshotv1beta1.VirtualMachineRestoreStatus{
				Complete: &no,
				Restores: []snapshotv1beta1.VolumeRestore{
					{VolumeName: "root", PersistentVolumeClaimName: "restore-root"},
				},
				Conditions: []snapshotv1beta1.Condition{
					condition(snapshotv1beta1.ConditionProgressing, "Waiting for claims"),
				},
			}),
			store.Snapshot{
				Phase: "InProgress", Health: store.Busy, Stage: "Waiting for claims",
				Claims: [][2]string{{"root", "restore-root"}},
			},
		},
		"a restore that is complete": {
			restoreRow(&snapshotv1beta1.VirtualMachineRestoreStatus{Complete: &yes, RestoreTime: &at}),
			store.Snapshot{Phase: "Complete", Health: store.Well, Ended: true, Taken: at.Time},
		},
		"a restore that failed": {restoreRow(&snapshotv1beta1.VirtualMachineRestoreStatus{
			Complete:   &no,
			Conditions: []snapshotv1beta1.Condition{condition(snapshotv1beta1.ConditionFailure, "no room")},
		}), store.Snapshot{Phase: "Failed", Health: store.Bad, Ended: true, Trouble: "no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := *tc.row, tc.want
			want.Namespace, want.Name, want.Resource, want.Kind, want.Maker = got.Namespace, got.Name, got.Resource,
				got.Kind, got.Maker
			want.Machine, want.Target, want.Of, want.Deadline, got.Conditions = got.Machine, got.Target, got.Of,
				got.Deadline, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			switch {
			case got.Resource == store.Snapshots &&
				(got.Machine != "demo" || got.Of != "" || got.Deadline != 5*time.Minute):
				t.Errorf("%+v", got)
			case got.Resource == store.Restores && (got.Target != "demo" || got.Of != "snap"):
				t.Errorf("%+v", got)
			}
		})
	}
}

func restoreRow(status *snapshotv1beta1.VirtualMachineRestoreStatus) *store.Snapshot {
	r := NewRestore("default", "r", "snap", "demo", RestoreOptions{})
	r.Status = status
	return RestoreRow(r)
}

// A complete restore that keeps what it replaced can be undone; its row says so.
func TestKeptRow(t *testing.T) {
	for name, tc := range map[string]struct {
		keep, complete, want bool
	}{
		"kept": {true, true, true}, "under way": {true, false, false}, "not kept": {false, true, false},
	} {
		r := NewRestore("default", "r", "snap", "demo", RestoreOptions{Keep: tc.keep})
		r.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{Complete: &tc.complete}
		if got := RestoreRow(r).Kept; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestVolumeRows has the size of a volume be what its VolumeSnapshot takes at least, once that is known.
func TestVolumeRows(t *testing.T) {
	c := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	c.Namespace, c.Name = "default", "content"
	claim := snapshotv1beta1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("local"),
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}}
	claim.Name = "demo-root"
	c.Spec.VolumeBackups = []snapshotv1beta1.VolumeBackup{
		{VolumeName: "root", PersistentVolumeClaim: claim, VolumeSnapshotName: new("vs-root")},
		{VolumeName: "data", PersistentVolumeClaim: claim},
	}
	c.Status = &snapshotv1beta1.VirtualMachineSnapshotContentStatus{
		VolumeSnapshotStatus: []snapshotv1beta1.VolumeSnapshotStatus{
			{VolumeSnapshotName: "vs-root", ReadyToUse: new(true), CreationTime: &at},
		},
	}
	size := resource.MustParse("2Gi")
	v := &volumesnapshotv1.VolumeSnapshot{Status: &volumesnapshotv1.VolumeSnapshotStatus{RestoreSize: &size}}
	v.Namespace, v.Name = "default", "vs-root"

	tables := store.NewSnapshotTables(func() {})
	s := &store.Snapshot{Namespace: "default", Content: "content"}
	if got := tables.VolumesOf(s); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	row := ContentRow(c)
	tables.Contents.Load(map[store.Key]*store.Content{{Namespace: row.Namespace, Name: row.Name}: row})
	if got := tables.VolumesOf(s)[0].Size.String(); got != "1Gi" {
		t.Errorf("before the VolumeSnapshot is known it has %s", got)
	}
	tables.Volumes.Load(map[store.Key]*store.VolumeSnapshot{
		{Namespace: v.Namespace, Name: v.Name}: VolumeSnapshotRow(v),
	})
	got := tables.VolumesOf(s)
	if len(got) != 2 || got[0].Size.String() != "2Gi" || got[1].Size.String() != "1Gi" ||
		row.Volumes[0].Size.String() != "1Gi" {
		t.Errorf("%+v", got)
	}
	if root, data := got[0], got[1]; !root.Ready || !root.Taken.Equal(at.Time) || root.Class != "local" ||
		root.Claim != "demo-root" || data.Ready || data.VolumeSnapshot != "" {
		t.Errorf("%+v", got)
	}
}
