package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

// TestExpanding: virt-handler ends the condition once the guest's disks have their sizes, says why they have not, and
// leaves it alone while it is virt-controller's.
func TestExpanding(t *testing.T) {
	vmi := vmiOf(t, scheduled)
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "data"})
	vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
		Name: "data", Target: "vdb", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "c", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		},
	})
	key := expansion.Key(vmi)
	for name, tc := range map[string]struct {
		reason string // of the condition before, "" for none
		growth Growth
		want   string // the condition's message after, "" for none
	}{
		"nothing":                 {"", Growth{}, ""},
		"not asked yet":           {expansion.ReasonGuest, Growth{}, "as before"},
		"asked before it changed": {expansion.ReasonGuest, Growth{Key: "else"}, "as before"},
		"done":                    {expansion.ReasonGuest, Growth{Key: key}, ""},
		"failed":                  {expansion.ReasonGuest, Growth{Key: key, Failure: "no room"}, "no room"},
		"failed by itself":        {"", Growth{Key: key, Failure: "no room"}, "no room"},
		"old launcher":            {expansion.ReasonGuest, Growth{Key: key, Failure: "old", Old: true}, "old"},
		"old launcher, unasked":   {"", Growth{Key: key, Failure: "old", Old: true}, ""},
		"the storage's":           {expansion.ReasonStorage, Growth{Key: key}, "as before"},
	} {
		in := Input{VMI: vmi.DeepCopy(), Pod: pod(), Now: now, Guest: guest(nil), Growth: tc.growth}
		in.Growth.Sizes = map[string]int64{"data": 2 << 30}
		if tc.reason != "" {
			in.VMI.Status.Conditions = append(in.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
				Type: expansion.Condition, Status: corev1.ConditionTrue, Reason: tc.reason, Message: "as before",
			})
		}
		next := Next(in)
		got := ""
		if c := conditions.Find(next.Conditions, expansion.Condition); c != nil {
			got = c.Message
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		for _, s := range next.VolumeStatus {
			if (s.Size == 2<<30) != (s.Name == "data") {
				t.Errorf("%s: volume %s has size %d", name, s.Name, s.Size)
			}
		}
	}
}
