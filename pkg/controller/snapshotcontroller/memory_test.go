package snapshotcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

const testVolume = "vmsnapshot-memory-c"

// withMemory is the view of a content that is to have memory. The instance has the volume when its phase is not empty.
func withMemory(guest Guest, claim bool, phase v1.VolumePhase, record *savedmemory.Memory) ContentView {
	view := viewOf(content(func(c *v1beta1.VirtualMachineSnapshotContent) {
		c.Annotations = map[string]string{savedmemory.IncludeAnnotation: "true"}
		if record != nil {
			text, err := record.Encode()
			if err != nil {
				panic(err)
			}
			c.Annotations[savedmemory.MemoryAnnotation] = text
		}
	}), guest)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "guest"}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("1Gi"))}
	if phase != "" {
		vmi.Spec.Volumes = []v1.Volume{{Name: testVolume}}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: testVolume, Phase: phase, Message: "no node has it"}}
	}
	view.Memory = &MemoryView{VMI: vmi}
	if claim {
		view.Memory.Claim = &corev1.PersistentVolumeClaim{}
	}
	return view
}

// The guest is frozen, and its volumes are snapshotted, only when its memory has somewhere to go.
func TestNextContentWithMemory(t *testing.T) {
	closed := FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedPaused, Thawed: true}
	done := withMemory(GuestRunning, true, v1.HotplugVolumeMounted, nil)
	recorded(closed)(done.Content)
	for _, name := range []string{"a", "b"} {
		done.VolumeSnapshots["vs-"+name] = volumeSnapshot(name, true, true, "")
	}
	left := withMemory(GuestRunning, true, "", &savedmemory.Memory{
		Guest: "guest", Saved: savedmemory.Saved{Failure: "QEMU is gone"},
	})
	left.Memory.VMI = nil // the cache that says that the guest runs is behind
	gone := withMemory(GuestRunning, true, v1.HotplugVolumeMounted, nil)
	gone.Snapshot = nil
	for name, tc := range map[string]struct {
		view                              ContentView
		claim, plug, unplug, save, freeze bool
		create                            int
		message                           string
	}{
		"no claim":    {view: withMemory(GuestRunning, false, "", nil), claim: true},
		"no volume":   {view: withMemory(GuestRunning, true, "", nil), plug: true},
		"not mounted": {view: withMemory(GuestRunning, true, v1.HotplugVolumeAttachedToNode, nil)},
		"pending":     {view: withMemory(GuestRunning, true, v1.VolumePending, nil), message: "no node has it"},
		"mounted": {
			view: withMemory(GuestRunning, true, v1.HotplugVolumeMounted, nil), save: true, freeze: true, create: 2,
		},
		"ended": {view: withMemory(NoGuest, true, "", nil), message: "it does not run any more"},
		"failed": {
			view: withMemory(GuestRunning, true, v1.HotplugVolumeMounted,
				&savedmemory.Memory{Saved: savedmemory.Saved{Failure: "no space"}}),
			unplug: true, message: "no space",
		},
		"failed of this guest": {
			view: withMemory(GuestRunning, true, v1.HotplugVolumeMounted,
				&savedmemory.Memory{Guest: "guest", Saved: savedmemory.Saved{Failure: "no space"}}),
			unplug: true, message: "no space",
		},
		"failed, as its guest ended": {
			view: withMemory(GuestRunning, true, "",
				&savedmemory.Memory{Guest: "before", Saved: savedmemory.Saved{Failure: "QEMU is gone"}}),
			plug: true,
		},
		"gone":    {view: left, message: "it does not run any more"},
		"done":    {view: done, unplug: true},
		"deleted": {view: gone, unplug: true},
	} {
		t.Run(name, func(t *testing.T) {
			step := NextContent(tc.view)
			has := step.VMI != nil && hotplug.Volume(&step.VMI.Spec, testVolume) != nil
			if (step.CreateClaim != nil) != tc.claim || has != tc.plug || (step.VMI != nil && !has) != tc.unplug ||
				step.SaveMemory != tc.save || step.Freeze != tc.freeze || len(step.Create) != tc.create {
				t.Errorf("%+v", step)
			}
			if got := message(step.Status); !strings.Contains(got, tc.message) || (tc.message == "") != (got == "") {
				t.Errorf("message %q", got)
			}
		})
	}
}

func TestMemoryClaim(t *testing.T) {
	view := withMemory(GuestRunning, false, "", nil)
	view.Memory.VMI.Status.Memory = &v1.MemoryStatus{GuestCurrent: new(resource.MustParse("2Gi"))}
	claim := NextContent(view).CreateClaim
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if claim.Name != testVolume || !metav1.IsControlledBy(claim, view.Content) ||
		*claim.Spec.StorageClassName != "csi" ||
		size.Value() < 2<<30+sizing.SavedRoom || size.Value() > 3<<30 {
		t.Errorf("%+v", claim)
	}
}

func TestDescribeMemory(t *testing.T) {
	ended := now.Add(time.Second)
	whole := &savedmemory.Memory{
		Claim: "c", Saved: savedmemory.Saved{Began: now, Ended: &ended, Size: 100 << 20},
		Stood: metav1.Duration{Duration: 1500 * time.Millisecond},
	}
	got := describeMemory(withMemory(GuestRunning, true, "", whole).Content)
	if got == nil || got.Indication != snapshots.WithMemory ||
		!strings.Contains(got.Message, "100 MiB, is in claim c") ||
		!strings.Contains(got.Message, "stood still for 1.5s") {
		t.Errorf("%+v", got)
	}
	view, next := View{Content: withMemory(GuestRunning, true, "", whole).Content},
		&v1beta1.VirtualMachineSnapshotStatus{}
	recorded(FreezeRecord{Quiesced: snapshots.QuiescedPaused, Thawed: true})(view.Content)
	if indicate(view, next); len(next.SourceIndications) != 2 ||
		next.SourceIndications[0].Indication != snapshots.WithMemory ||
		next.SourceIndications[1].Indication != v1beta1.VMSnapshotOnlineSnapshotIndication {
		t.Errorf("%+v", next.SourceIndications)
	}
	whole.Failure = "no space"
	for _, record := range []*savedmemory.Memory{nil, {}, whole} {
		if got := describeMemory(withMemory(GuestRunning, true, "", record).Content); got != nil {
			t.Errorf("%+v", got)
		}
	}
}

// What keeps memory out of a snapshot is said before anything is done.
func TestNextWithMemory(t *testing.T) {
	snapshot := inPhase(v1beta1.InProgress, time.Minute, false)
	view := View{Snapshot: snapshot, VM: vmLockedBy(""), Served: true, Now: now}
	if step := Next(view); !step.Lock {
		t.Fatalf("without memory: %+v", step)
	}
	snapshot.Annotations = map[string]string{savedmemory.IncludeAnnotation: "true"}
	step := Next(view)
	const waits = "Source not locked: its memory cannot be in the snapshot yet: the guest does not run"
	if step.Lock || step.CreateContent || step.Status.Conditions[0].Reason != waits {
		t.Errorf("%+v, %+v", step, step.Status.Conditions)
	}
	// It is still said when the time is over, and after that.
	late := view
	late.Snapshot, late.Now = snapshot.DeepCopy(), now.Add(time.Hour)
	late.Snapshot.Status = step.Status
	for ; late.Now.Before(now.Add(3 * time.Hour)); late.Now = late.Now.Add(time.Hour) {
		late.Snapshot.Status = Next(late).Status
		failure := conditions.Find(late.Snapshot.Status.Conditions, v1beta1.ConditionFailure)
		if failure == nil || failure.Reason != "snapshot deadline exceeded" ||
			failure.Message != failure.Reason+": "+waits {
			t.Errorf("after the deadline: %+v", failure)
		}
	}
	view.VMI = &v1.VirtualMachineInstance{}
	view.VMI.Status.Phase = v1.Running
	if step := Next(view); !step.Lock {
		t.Errorf("of a guest that runs: %+v", step.Status.Conditions)
	}
}
