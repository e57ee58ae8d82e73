package snapshot

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// TestReached has what is said at the end of `snapshot create --wait`.
func TestReached(t *testing.T) {
	for want, tc := range map[string]struct {
		volumes     []string
		indications []snapshotv1beta1.Indication
	}{
		"2 volumes, and the guest was frozen by its agent": {
			[]string{"a", "b"},
			[]snapshotv1beta1.Indication{
				snapshotv1beta1.VMSnapshotOnlineSnapshotIndication, snapshotv1beta1.VMSnapshotGuestAgentIndication,
			},
		},
		"1 volume, and the guest has no agent that could freeze it": {
			[]string{"a"},
			[]snapshotv1beta1.Indication{
				snapshotv1beta1.VMSnapshotOnlineSnapshotIndication, snapshotv1beta1.VMSnapshotNoGuestAgentIndication,
			},
		},
		"1 volume, and the guest wrote again before all were taken": {
			[]string{"a"},
			[]snapshotv1beta1.Indication{
				snapshotv1beta1.VMSnapshotGuestAgentIndication, snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication,
			},
		},
		"1 volume, and the guest was paused": {
			[]string{"a"},
			[]snapshotv1beta1.Indication{
				snapshotv1beta1.VMSnapshotOnlineSnapshotIndication, snapshotv1beta1.VMSnapshotPausedIndication,
			},
		},
		"1 volume, and the guest's memory; the guest stood still while it was saved": {
			[]string{"a"},
			[]snapshotv1beta1.Indication{snapshotv1beta1.VMSnapshotOnlineSnapshotIndication, vmsnapshots.WithMemory},
		},
		"no volume, and the VM was stopped": {nil, nil},
	} {
		s := New("default", "demo", "s1", Options{})
		s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
			SnapshotVolumes: &snapshotv1beta1.SnapshotVolumesLists{IncludedVolumes: tc.volumes},
		}
		for _, i := range tc.indications {
			s.Status.SourceIndications = append(s.Status.SourceIndications,
				snapshotv1beta1.SourceIndication{Indication: i})
		}
		if got := Reached(s); got != "virtualmachinesnapshot.snapshot.kubevirt.io/s1 is ready: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestReachedRestore has what is said at the end of `snapshot restore --wait`.
func TestReachedRestore(t *testing.T) {
	r := &snapshotv1beta1.VirtualMachineRestore{}
	r.Spec.Target, r.Spec.VirtualMachineSnapshotName = corev1.TypedLocalObjectReference{Name: "demo"}, "s1"
	r.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{Restores: make([]snapshotv1beta1.VolumeRestore, 2)}
	if got, want := ReachedRestore(r), "virtualmachine.kubevirt.io/demo is restored: it has the spec of "+
		"snapshot s1 and 2 volumes of it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A restore that failed is an error that has the condition's message, which says which VM is left, or else its reason.
func TestRestoredSaysWhatIsLeft(t *testing.T) {
	for want, message := range map[string]string{
		"restore ns/r failed: no room; VM vm is the old one": "no room; VM vm is the old one",
		"restore ns/r failed: no room":                       "",
	} {
		r := &snapshotv1beta1.VirtualMachineRestore{Status: &snapshotv1beta1.VirtualMachineRestoreStatus{
			Conditions: []snapshotv1beta1.Condition{{
				Type: snapshotv1beta1.ConditionFailure, Status: corev1.ConditionTrue,
				Reason: "no room", Message: message,
			}},
		}}
		r.Namespace, r.Name = "ns", "r"
		if done, err := Restored(r); done || err == nil || err.Error() != want {
			t.Errorf("%t, %v, want %q", done, err, want)
		}
	}
}
