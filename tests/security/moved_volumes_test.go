//go:build integration

package security

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func claimInfo(name string) *v1.PersistentVolumeClaimInfo {
	return &v1.PersistentVolumeClaimInfo{
		ClaimName: name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}
}

// copying is the status of a VMI that moves from one node to another, and whose disk on claim old is copied to new.
func copying(from, to string) v1.VirtualMachineInstanceStatus {
	s := moving(from, to)
	s.VolumeStatus = append(s.VolumeStatus, v1.VolumeStatus{Name: "data", PersistentVolumeClaimInfo: claimInfo("old")})
	s.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{
		VolumeName: "data", SourcePVCInfo: claimInfo("old"), DestinationPVCInfo: claimInfo("new"),
	}}
	s.Conditions = []v1.VirtualMachineInstanceCondition{{Type: volumemigration.Condition, Status: corev1.ConditionTrue}}
	return s
}

// A broken node's token says that disks are copied, or has a guest on claims to which nobody has its disks copied.
func TestMovedVolumesOfVirtHandler(t *testing.T) {
	namespace, _ := tenant(t)
	handler := handlerOf(t, ownNode)
	leaving, coming := copying(ownNode, otherNode), copying(otherNode, ownNode)
	instances := map[string]*v1.VirtualMachineInstance{
		"own":     newInstance(t, namespace, "own", running(ownNode)),
		"leaving": newInstance(t, namespace, "leaving", leaving),
		"coming":  newInstance(t, namespace, "coming", coming),
	}
	// Once the policy is in force, which takes a moment: what it let through before would be no change afterwards.
	other := newInstance(t, namespace, "other", running(otherNode))
	denied(t, "is on another node", func() error {
		return handler.Status().Patch(t.Context(), other.DeepCopy(),
			merge(t, map[string]any{"status": map[string]any{"phase": "Failed"}}))
	})
	const (
		which  = "which volumes move"
		part   = "part of a VirtualMachineInstance's status"
		volume = "attachment pod or a claim"
	)
	// on returns volumes of which one is on a claim.
	on := func(s v1.VirtualMachineInstanceStatus, name, claim string) []v1.VolumeStatus {
		list := s.DeepCopy().VolumeStatus
		for i := range list {
			if list[i].Name == name {
				list[i].PersistentVolumeClaimInfo = claimInfo(claim)
			}
		}
		return list
	}
	shared := on(coming, "data", "new")
	shared[len(shared)-1].PersistentVolumeClaimInfo.AccessModes = []corev1.PersistentVolumeAccessMode{
		corev1.ReadWriteMany,
	}
	another := coming.DeepCopy().MigratedVolumes
	another[0].DestinationPVCInfo.ClaimName = "another"
	for _, c := range []struct {
		name, instance, says string
		status               map[string]any
	}{
		{"says that a disk is copied", "own", which, map[string]any{"migratedVolumes": leaving.MigratedVolumes}},
		{"says that no disk is copied", "leaving", which, map[string]any{"migratedVolumes": nil}},
		{"says so of a guest that comes", "coming", which, map[string]any{"migratedVolumes": nil}},
		{"has a disk copied elsewhere", "leaving", which, map[string]any{"migratedVolumes": another}},
		{"has a disk copied elsewhere as it takes the guest", "coming", which, map[string]any{
			"nodeName": ownNode, "migratedVolumes": another, "volumeStatus": on(coming, "data", "another"),
		}},
		{
			"is on the new claim before the guest has moved", "leaving", volume,
			map[string]any{"volumeStatus": on(leaving, "data", "new")},
		},
		{
			"is on the new claim before it takes the guest", "coming", part,
			map[string]any{"volumeStatus": on(coming, "data", "new")},
		},
		{"takes the guest on a claim of its choice", "coming", volume, map[string]any{
			"nodeName": ownNode, "migratedVolumes": nil, "volumeStatus": on(coming, "data", "another"),
		}},
		{"takes the guest with another disk on the new claim", "coming", volume, map[string]any{
			"nodeName": ownNode, "migratedVolumes": nil, "volumeStatus": on(coming, "state-1", "new"),
		}},
		{"takes the guest on a claim that is said to be another's, too", "coming", volume, map[string]any{
			"nodeName": ownNode, "migratedVolumes": nil, "volumeStatus": shared,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			denied(t, c.says, func() error {
				return handler.Status().Patch(t.Context(), instances[c.instance].DeepCopy(),
					merge(t, map[string]any{"status": c.status}))
			})
		})
	}
	t.Run("what virt-handler does", func(t *testing.T) {
		vmi := instances["coming"].DeepCopy()
		next := vmi.DeepCopy()
		now := metav1.Now().Time
		guest := &launcherpb.GuestState{
			Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING, MemoryAtBoot: 1 << 30, Machine: "q35", Vcpus: 1,
			StateSaved: true,
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod2", Name: "p2"}}
		next.Status = vmistatus.AtTarget(vmistatus.Input{VMI: vmi, Pod: pod, Guest: guest, Now: now}, vmistatus.Target{
			Node: ownNode, Address: "192.0.2.7", Port: 8187, Prepared: true,
		})
		if got := volumemigration.InUse(&next.Status, "data"); got != "new" || next.Status.NodeName != ownNode ||
			len(next.Status.MigratedVolumes) > 0 {
			t.Fatalf("the guest is on node %q and claim %q", next.Status.NodeName, got)
		}
		allowed(t, func() error {
			return handler.Status().Patch(t.Context(), next.DeepCopy(), client.MergeFrom(vmi))
		})
	})
}
