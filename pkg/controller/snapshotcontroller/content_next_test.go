package snapshotcontroller

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

var now = time.Unix(1_800_000_000, 0).UTC()

// content has two claims.
func content(change func(*v1beta1.VirtualMachineSnapshotContent)) *v1beta1.VirtualMachineSnapshotContent {
	backup := func(name string) v1beta1.VolumeBackup {
		b := v1beta1.VolumeBackup{VolumeName: name, VolumeSnapshotName: new("vs-" + name)}
		b.PersistentVolumeClaim.Name = name
		b.PersistentVolumeClaim.Spec.StorageClassName = new("csi")
		return b
	}
	out := &v1beta1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "test", Name: "content", UID: "c", Finalizers: []string{snapshots.ContentFinalizer},
		},
		Spec: v1beta1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: new("snap"), VolumeBackups: []v1beta1.VolumeBackup{backup("a"), backup("b")},
			Source: v1beta1.SourceSpec{
				VirtualMachine: &v1beta1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "demo"}},
			},
		},
	}
	if change != nil {
		change(out)
	}
	return out
}

func recorded(w FreezeRecord) func(*v1beta1.VirtualMachineSnapshotContent) {
	return func(c *v1beta1.VirtualMachineSnapshotContent) {
		text, err := json.Marshal(w)
		if err != nil {
			panic(err)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, FreezeAnnotation, string(text))
	}
}

func snapshotAged(age time.Duration) *v1beta1.VirtualMachineSnapshot {
	return &v1beta1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: "test", Name: "snap", UID: "s", CreationTimestamp: metav1.NewTime(now.Add(-age)),
		Finalizers: []string{snapshots.SnapshotFinalizer},
	}}
}

// volumeSnapshot is taken, or has failed with an error, or neither.
func volumeSnapshot(name string, taken, ready bool, failure string) *snapshotv1.VolumeSnapshot {
	out := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "vs-" + name}, Status: &snapshotv1.VolumeSnapshotStatus{ReadyToUse: &ready},
	}
	if taken {
		out.Status.CreationTime = new(metav1.NewTime(now))
	}
	if failure != "" {
		out.Status.Error = &snapshotv1.VolumeSnapshotError{Message: &failure}
	}
	return out
}

func viewOf(c *v1beta1.VirtualMachineSnapshotContent, guest Guest, there ...*snapshotv1.VolumeSnapshot) ContentView {
	view := ContentView{
		Content: c, Snapshot: snapshotAged(time.Minute), Guest: guest, Served: true, Now: now,
		VolumeSnapshots: map[string]*snapshotv1.VolumeSnapshot{},
		Classes: snapshots.Classes{
			Provisioners: map[string]string{"csi": "d"}, Snapshots: []snapshots.Class{{Name: "class", Driver: "d"}},
		},
	}
	for _, s := range there {
		view.VolumeSnapshots[s.Name] = s
	}
	return view
}

func message(s *v1beta1.VirtualMachineSnapshotContentStatus) string {
	if s == nil || s.Error == nil {
		return ""
	}
	return *s.Error.Message
}

// A content that was made with the record of its guest's freeze needs no other, unless another guest runs, or it is a
// while since.
func TestRecordOfANewContent(t *testing.T) {
	first := newRecord(snapshotAged(time.Minute), "mine", now)
	old := *first
	old.Until = old.Until.Add(-time.Minute)
	for name, test := range map[string]struct {
		is    FreezeRecord
		guest types.UID
		same  bool
	}{
		"new": {*first, "mine", true}, "another guest": {*first, "other", false}, "old": {old, "mine", false},
	} {
		view := viewOf(content(recorded(test.is)), GuestRunning)
		view.GuestUID, view.Now = test.guest, now.Add(time.Second/2)
		step := NextContent(view)
		if !step.Freeze || len(step.Create) != 2 || (*step.Record == test.is) != test.same || step.Record.TimedOut {
			t.Errorf("%s: freeze %t, record %+v", name, step.Freeze, step.Record)
		}
	}
}

func count(events []Event, reason string) (n int) {
	for _, event := range events {
		if event.Reason == reason {
			n++
		}
	}
	return n
}

// inTime is when the guest is thawed whose snapshot may take four minutes more.
const inTime = 4*time.Minute - snapshots.ControllerEarly

func TestNextContent(t *testing.T) {
	open := FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedAgent}
	over := FreezeRecord{Until: now.Add(-time.Second), Quiesced: snapshots.QuiescedAgent}
	closed := FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedAgent, Thawed: true}
	takenA, takenB := volumeSnapshot("a", true, true, ""), volumeSnapshot("b", true, true, "")
	waiting := volumeSnapshot("b", false, false, "")
	failed := volumeSnapshot("b", false, false, "no space")
	made := func(c *v1beta1.VirtualMachineSnapshotContent) {
		c.Status = &v1beta1.VirtualMachineSnapshotContentStatus{CreationTime: new(metav1.NewTime(now))}
	}
	gone := viewOf(content(recorded(open)), GuestRunning, takenA)
	gone.Snapshot = nil
	late := viewOf(content(recorded(open)), GuestRunning, takenA, waiting)
	late.Snapshot = snapshotAged(time.Hour)
	unserved := viewOf(content(nil), GuestRunning)
	unserved.Served = false
	classless := viewOf(content(nil), GuestRunning)
	classless.Classes = snapshots.Classes{}
	retained := viewOf(content(made), NoGuest, takenA, takenB)
	retained.Snapshot.DeletionTimestamp = new(metav1.NewTime(now))
	deleted := viewOf(content(recorded(open)), GuestRunning, takenA, waiting)
	deleted.Content.DeletionTimestamp = new(metav1.NewTime(now))

	of := func(guest types.UID, view ContentView) ContentView {
		view.GuestUID = guest
		return view
	}
	mine := open
	mine.Guest = "mine"

	for name, test := range map[string]struct {
		view                         ContentView
		freeze, thaw, created, lapse bool
		create, missing              int
		trouble                      string
		finalizer                    bool
		again                        time.Duration
	}{
		"online begins": {
			view: viewOf(content(nil), GuestRunning), freeze: true, create: 2, again: inTime,
		},
		"offline begins":    {view: viewOf(content(nil), NoGuest), create: 2},
		"no node yet":       {view: viewOf(content(nil), GuestWaiting), create: 2},
		"starting":          {view: viewOf(content(nil), GuestChanging), again: retry},
		"no kind":           {view: unserved, trouble: "install the CSI snapshot controller"},
		"no class":          {view: classless, trouble: "No VolumeSnapshotClass", again: retry},
		"one is waited for": {view: viewOf(content(recorded(open)), GuestRunning, takenA, waiting), again: time.Minute},
		"all are taken": {
			view: viewOf(content(recorded(open)), GuestRunning, takenA, takenB), thaw: true, created: true,
		},
		"one fails": {
			view: viewOf(content(recorded(open)), GuestRunning, takenA, failed), thaw: true, lapse: true,
			trouble: "vs-b error: no space",
		},
		"of the guest of before": {
			view: of("mine", viewOf(content(recorded(mine)), GuestRunning, takenA, takenB)), thaw: true, created: true,
		},
		"of another guest": {
			view: of("other", viewOf(content(recorded(mine)), GuestRunning, takenA, takenB)), thaw: true, lapse: true,
			created: true,
		},
		"another guest, one is taken": {
			view: of("other", viewOf(content(recorded(mine)), GuestRunning, takenA)), freeze: true, create: 1,
			lapse: true, again: inTime,
		},
		"the time is over": {
			view: viewOf(content(recorded(over)), GuestRunning, takenA, waiting), thaw: true, lapse: true,
		},
		"taken too late": {
			view: viewOf(content(recorded(over)), GuestRunning, takenA, takenB), thaw: true, lapse: true, created: true,
		},
		"restart, in time": {
			view: viewOf(content(recorded(open)), GuestRunning, takenA), freeze: true, create: 1,
			again: inTime,
		},
		"restart, too late": {
			view: viewOf(content(recorded(over)), GuestRunning, takenA), freeze: true, create: 1, lapse: true,
			again: inTime,
		},
		"after a failed create": {
			view: viewOf(content(recorded(closed)), GuestRunning, takenA), freeze: true, create: 1, lapse: true,
			again: inTime,
		},
		"after a failed freeze": {
			view: viewOf(content(recorded(closed)), GuestRunning), freeze: true, create: 2, again: inTime,
		},
		"offline, all are taken": {view: viewOf(content(nil), NoGuest, takenA, takenB), created: true},
		"one is lost": {
			view: viewOf(content(made), NoGuest, takenA), created: true, missing: 1,
			trouble: "VolumeSnapshots (vs-b) missing",
		},
		"snapshot gone":         {view: gone, thaw: true, finalizer: true},
		"deadline":              {view: late, thaw: true, finalizer: true},
		"deleted, kept":         {view: retained, finalizer: true},
		"content deleted alone": {view: deleted, thaw: true},
	} {
		step := NextContent(test.view)
		created := step.Status != nil && step.Status.CreationTime != nil
		lapse := step.Record != nil && step.Record.TimedOut
		if step.Freeze != test.freeze || step.Thaw != test.thaw || created != test.created || lapse != test.lapse ||
			len(step.Create) != test.create || count(step.Events, "VolumeSnapshotMissing") != test.missing ||
			step.RemoveFinalizer != test.finalizer ||
			step.RequeueAfter != test.again || (test.trouble == "") != (message(step.Status) == "") ||
			!strings.Contains(message(step.Status), test.trouble) {
			t.Errorf("%s: %+v, record %+v, trouble %q", name, step, step.Record, message(step.Status))
		}
		if step.Record != nil && step.Record.Complete != (step.Thaw && created) {
			t.Errorf("%s: record %+v of a snapshot that is made: %t", name, step.Record, created)
		}
		if step.Thaw && (step.Record == nil || !step.Record.Thawed) {
			t.Errorf("%s: a thaw that is not remembered: %+v", name, step.Record)
		}
		if step.Thaw && test.trouble == "" && step.Status != nil && !step.Later {
			t.Errorf("%s: the status is written before the guest writes again", name)
		}
	}

	step := NextContent(viewOf(content(nil), GuestRunning))
	first := step.Create[0]
	if !step.Record.Until.After(now) || step.Record.Thawed || *first.Spec.VolumeSnapshotClassName != "class" ||
		*first.Spec.Source.PersistentVolumeClaimName != "a" || first.Labels[snapshots.LabelSourceName] != "demo" ||
		len(first.OwnerReferences) != 1 || first.OwnerReferences[0].UID != "c" {
		t.Errorf("VolumeSnapshot %+v, record %+v", first, step.Record)
	}
}

// A status that is written is not written again.
func TestNextContentSettles(t *testing.T) {
	for name, view := range map[string]ContentView{
		"failed": viewOf(content(recorded(FreezeRecord{Thawed: true})), GuestRunning,
			volumeSnapshot("a", true, true, ""), volumeSnapshot("b", false, false, "no space")),
		"ready": viewOf(content(nil), NoGuest, volumeSnapshot("a", true, true, ""),
			volumeSnapshot("b", true, true, "")),
	} {
		first := NextContent(view)
		view.Content.Status, view.Now = first.Status, now.Add(time.Second)
		second := NextContent(view)
		a, errA := json.Marshal(first.Status)
		b, errB := json.Marshal(second.Status)
		if errA != nil || errB != nil || string(a) != string(b) || second.Record != nil || second.RequeueAfter != 0 {
			t.Errorf("%s: first %s, then %s, %+v", name, a, b, second)
		}
	}
}

// The guest goes on when the driver has taken all volumes, whether or not their VolumeSnapshots say so.
func TestTakenByTheDriver(t *testing.T) {
	open := FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedAgent}
	unbound := volumeSnapshot("a", false, false, "")
	unbound.Status = nil
	when := metav1.NewTime(now.Add(-time.Second))
	view := viewOf(content(recorded(open)), GuestRunning, unbound, volumeSnapshot("b", true, true, ""))
	if step := NextContent(view); step.Thaw {
		t.Errorf("thawed with one that is not taken: %+v", step)
	}
	view.Taken = map[string]metav1.Time{"vs-a": when}
	step := NextContent(view)
	if !step.Thaw || !step.Record.Complete || step.Record.TimedOut || *step.Status.ReadyToUse {
		t.Errorf("all are taken: %+v, record %+v", step, step.Record)
	}
	if volumes := step.Status.VolumeSnapshotStatus; !volumes[0].CreationTime.Equal(&when) ||
		volumes[1].CreationTime.Equal(&when) {
		t.Errorf("volumes %+v", volumes)
	}
}

// That all volumes are taken is said with their being ready, if that comes soon.
func TestReadySoon(t *testing.T) {
	closed := FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedAgent, Thawed: true, Complete: true}
	for name, test := range map[string]struct {
		ago     time.Duration
		ready   bool
		failure string
		// thawed says that it is the guest that was thawed then, and that the volumes were taken before.
		thawed bool
		later  time.Duration
	}{
		"just taken":             {0, false, "", false, readySoon},
		"a moment ago":           {readySoon / 4, false, "", false, readySoon * 3 / 4},
		"long ago":               {readySoon, false, "", false, 0},
		"the driver's clock":     {-time.Hour, false, "", false, 0},
		"ready":                  {0, true, "", false, 0},
		"taken, and then failed": {0, false, "lost", false, 0},
		"just thawed":            {0, false, "", true, readySoon},
		"thawed a moment ago":    {readySoon / 4, false, "", true, readySoon * 3 / 4},
		"thawed long ago":        {readySoon, false, "", true, 0},
		"thawed, and ready":      {0, true, "", true, 0},
	} {
		b := volumeSnapshot("b", true, test.ready, test.failure)
		b.Status.CreationTime.Time = now.Add(-test.ago)
		a := volumeSnapshot("a", true, test.ready, "")
		a.Status.CreationTime.Time = now.Add(-time.Hour)
		record := closed
		if test.thawed {
			record.ThawedAt = b.Status.CreationTime.Time
			b.Status.CreationTime.Time = now.Add(-time.Hour)
		}
		step := NextContent(viewOf(content(recorded(record)), GuestRunning, a, b))
		if step.Later != (test.later > 0) || step.RequeueAfter != test.later || step.Status.CreationTime == nil {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

// What the volumes of a VM that is off come to is said at once when that does not take long, and step by step when it
// does.
func TestBrief(t *testing.T) {
	for name, test := range map[string]struct {
		age     time.Duration
		taken   bool
		ready   bool
		failure string
		later   time.Duration
	}{
		"just made":           {0, false, false, "", brief},
		"taken":               {time.Second, true, false, "", brief - time.Second},
		"ready":               {time.Second, true, true, "", 0},
		"failed":              {time.Second, false, false, "no space", 0},
		"slow":                {brief, false, false, "", 0},
		"another node's time": {-time.Second, false, false, "", 0},
	} {
		a, b := volumeSnapshot("a", true, true, ""), volumeSnapshot("b", test.taken, test.ready, test.failure)
		for _, s := range []*snapshotv1.VolumeSnapshot{a, b} {
			if s.Status != nil && s.Status.CreationTime != nil {
				s.Status.CreationTime.Time = now.Add(-time.Hour)
			}
		}
		young := func(c *v1beta1.VirtualMachineSnapshotContent) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
		}
		step := NextContent(viewOf(content(young), NoGuest, a, b))
		if step.Later != (test.later > 0) || step.RequeueAfter != test.later {
			t.Errorf("%s: %+v", name, step)
		}
	}
	made := NextContent(viewOf(content(func(c *v1beta1.VirtualMachineSnapshotContent) {
		c.CreationTimestamp = metav1.NewTime(now)
	}), NoGuest))
	if len(made.Create) != 2 || !made.Later || made.RequeueAfter != brief {
		t.Errorf("at first: %+v", made)
	}
}

// A guest may be frozen before anybody has written so. It is thawed at the end of a content that came to nothing.
func TestThawOfWhatIsNotRemembered(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.VirtualMachineSnapshotContent)
		guest  Guest
		thaw   bool
	}{
		"nothing was written": {nil, GuestRunning, true},
		"nothing runs":        {nil, NoGuest, false},
		"it said something": {func(c *v1beta1.VirtualMachineSnapshotContent) {
			c.Status = &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(false)}
		}, GuestRunning, false},
		"it was thawed": {recorded(FreezeRecord{Thawed: true}), GuestRunning, false},
	} {
		view := viewOf(content(test.change), test.guest)
		view.Snapshot.DeletionTimestamp = new(metav1.NewTime(now))
		step := NextContent(view)
		if step.Thaw != test.thaw || step.Record != nil || !step.RemoveFinalizer {
			t.Errorf("%s: %+v", name, step)
		}
		// It does not keep the content that no agent answers.
		if err := step.thawed(&view, context.DeadlineExceeded, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
