package volumesnapshots

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

// Only the content that was made for a VolumeSnapshot says when that was cut, and only once the driver has.
func TestCutBy(t *testing.T) {
	when := time.Unix(1_800_000_000, 7)
	good := func(change func(*snapshotv1.VolumeSnapshotContent)) *snapshotv1.VolumeSnapshotContent {
		c := &snapshotv1.VolumeSnapshotContent{}
		c.Spec.VolumeSnapshotRef.UID, c.Spec.Source.VolumeHandle = "u", new("volume")
		c.Status = &snapshotv1.VolumeSnapshotContentStatus{
			SnapshotHandle: new("handle"), CreationTime: new(when.UnixNano()),
		}
		if change != nil {
			change(c)
		}
		return c
	}
	snapshot := &snapshotv1.VolumeSnapshot{}
	snapshot.UID = "u"
	if cut := cutBy(good(nil), snapshot); cut == nil || !cut.Time.Equal(when) {
		t.Errorf("cut at %v", cut)
	}
	for name, change := range map[string]func(*snapshotv1.VolumeSnapshotContent){
		"of another VolumeSnapshot": func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.VolumeSnapshotRef.UID = "v" },
		"of a snapshot of before":   func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Source.VolumeHandle = nil },
		"nothing is cut":            func(c *snapshotv1.VolumeSnapshotContent) { c.Status = nil },
		"no handle":                 func(c *snapshotv1.VolumeSnapshotContent) { c.Status.SnapshotHandle = nil },
		"no time":                   func(c *snapshotv1.VolumeSnapshotContent) { c.Status.CreationTime = nil },
	} {
		if cut := cutBy(good(change), snapshot); cut != nil {
			t.Errorf("%s: cut at %v", name, cut)
		}
	}
}
