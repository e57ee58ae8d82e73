package volumesnapshots

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

// Only the content that was made for a VolumeSnapshot says when that was taken, and only once the driver has.
func TestTakenBy(t *testing.T) {
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
	if taken := takenBy(good(nil), snapshot); taken == nil || !taken.Time.Equal(when) {
		t.Errorf("taken at %v", taken)
	}
	for name, change := range map[string]func(*snapshotv1.VolumeSnapshotContent){
		"of another VolumeSnapshot": func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.VolumeSnapshotRef.UID = "v" },
		"of a snapshot of before":   func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Source.VolumeHandle = nil },
		"nothing is taken":          func(c *snapshotv1.VolumeSnapshotContent) { c.Status = nil },
		"no handle":                 func(c *snapshotv1.VolumeSnapshotContent) { c.Status.SnapshotHandle = nil },
		"no time":                   func(c *snapshotv1.VolumeSnapshotContent) { c.Status.CreationTime = nil },
	} {
		if taken := takenBy(good(change), snapshot); taken != nil {
			t.Errorf("%s: taken at %v", name, taken)
		}
	}
}
