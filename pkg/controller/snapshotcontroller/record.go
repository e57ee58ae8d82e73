package snapshotcontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// FreezeAnnotation is on a content from the moment its guest is asked to freeze: a FreezeRecord as JSON. From it, a
// virt-controller that starts anew knows about a freeze.
const FreezeAnnotation = "virtkit.io/freeze-window"

// QuiescedAnnotation is on a VolumeSnapshot that was made while a guest was frozen, and says how: a snapshots.Quiesced.
// The content has it once the guest is thawed; a write before would keep the frozen guest waiting.
const QuiescedAnnotation = "virtkit.io/quiesced"

// FreezeRecord holds what is known about the freeze of a guest.
type FreezeRecord struct {
	// Until is the time at which virt-controller thaws the guest at the latest. When it cannot, virt-handler or the
	// launcher does a little later (snapshots.ControllerThaws).
	Until time.Time `json:"until"`
	// Quiesced says how the guest was kept from writing; it is empty until that is recorded.
	Quiesced snapshots.Quiesced `json:"quiesced,omitempty"`
	// Thawed says that the guest may write again, and ThawedAt since when, if it was thawed on purpose.
	Thawed   bool      `json:"closed,omitempty"`
	ThawedAt time.Time `json:"thawedAt,omitzero"`
	// Complete says that it was thawed because all volumes are snapshotted: the VM may be unlocked.
	Complete bool `json:"cut,omitempty"`
	// TimedOut says that it wrote again before all volumes were snapshotted.
	TimedOut bool `json:"lapsed,omitempty"`
	// Guest is the VMI that was frozen. One that was started after it writes as soon as it likes.
	Guest types.UID `json:"guest,omitempty"`
}

// recordOf returns a content's; nil when no guest was frozen for it, or when nobody can read it.
func recordOf(annotations map[string]string) *FreezeRecord {
	text, ok := annotations[FreezeAnnotation]
	if !ok {
		return nil
	}
	out := &FreezeRecord{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return nil
	}
	return out
}

// newRecord returns the record of a guest that is to be frozen now.
func newRecord(snapshot *v1beta1.VirtualMachineSnapshot, guest types.UID, now time.Time) *FreezeRecord {
	most := maxFreeze
	if left, ok := snapshots.Left(snapshot, now); ok {
		most = min(most, max(left, time.Second))
	}
	until := now.Add(snapshots.ControllerThaws(most)).UTC().Truncate(time.Millisecond)
	return &FreezeRecord{Until: until, Guest: guest}
}

// most returns for how long from now on the guest may be frozen.
func (r *FreezeRecord) most(now time.Time) time.Duration {
	return max(snapshots.MostFrozen(r.Until.Sub(now)), time.Second)
}

// over reports whether the guest's launcher has thawed it by now, if nobody else has.
func (r *FreezeRecord) over(now time.Time) bool {
	return !now.Before(r.Until.Add(snapshots.ControllerEarly))
}

// fresh reports whether a record, which may be nil, was made for another one a moment ago and nothing has happened
// since.
func (r *FreezeRecord) fresh(another *FreezeRecord) bool {
	return r != nil && *r == FreezeRecord{Until: r.Until, Guest: another.Guest} &&
		another.Until.Sub(r.Until).Abs() <= brief
}

// annotations returns the annotations of a step that a content lacks.
func (s *ContentStep) annotations(content *v1beta1.VirtualMachineSnapshotContent) (map[string]string, error) {
	out := map[string]string{}
	if s.Record != nil {
		text, err := json.Marshal(s.Record)
		if err != nil {
			return nil, fmt.Errorf("encode what is known of a freeze: %w", err)
		}
		out[FreezeAnnotation] = string(text)
	}
	if s.Memory != nil {
		text, err := s.Memory.Encode()
		if err != nil {
			return nil, err
		}
		out[savedmemory.MemoryAnnotation] = text
	}
	maps.DeleteFunc(out, func(key, text string) bool { return content.Annotations[key] == text })
	return out, nil
}

// frozen reports whether a guest may be frozen still, given its record, which may be nil.
func (r *FreezeRecord) frozen() bool { return r != nil && !r.Thawed }

// thawed returns the record of a guest that is thawed now, on purpose. made are the VolumeSnapshots that there are.
func (r *FreezeRecord) thawed(made []*snapshotv1.VolumeSnapshot) *FreezeRecord {
	out := *r
	out.Thawed = true
	for _, snapshot := range made {
		if how := snapshot.Annotations[QuiescedAnnotation]; out.Quiesced == "" {
			out.Quiesced = snapshots.Quiesced(how)
		}
	}
	return &out
}

// maxFreeze bounds how long a guest may be kept from writing.
const maxFreeze = 5 * time.Minute
