package snapshot

import (
	"strings"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Row makes the row of a snapshot.
func Row(s *snapshotv1beta1.VirtualMachineSnapshot) *store.Snapshot {
	row := row(store.Snapshots, "VirtualMachineSnapshot", &s.ObjectMeta)
	row.Machine, row.Deadline = s.Spec.Source.Name, vmsnapshots.FailureDeadline(s)
	row.Retain = s.Spec.DeletionPolicy != nil &&
		*s.Spec.DeletionPolicy == snapshotv1beta1.VirtualMachineSnapshotContentRetain
	row.Phase, row.Trouble, row.Ready = Phase(s), Trouble(s), vmsnapshots.Ready(s)
	row.Health = store.Busy
	switch row.Phase {
	case string(snapshotv1beta1.Succeeded):
		row.Ended = true
		if row.Health = store.Well; !row.Ready {
			row.Health = store.Bad
		}
	case string(snapshotv1beta1.Failed):
		row.Health, row.Ended = store.Bad, true
	case string(snapshotv1beta1.Unknown):
		row.Health = store.Bad
	}
	st := s.Status
	if st == nil {
		return row
	}
	if row.Stage = ""; !row.Ended {
		row.Stage = progressing(st.Conditions)
	}
	if st.VirtualMachineSnapshotContentName != nil {
		row.Content = *st.VirtualMachineSnapshotContentName
	}
	if st.CreationTime != nil {
		row.Taken = st.CreationTime.Time
	}
	if v := st.SnapshotVolumes; v != nil {
		row.Included, row.Excluded = v.IncludedVolumes, v.ExcludedVolumes
	}
	for _, i := range st.SourceIndications {
		row.Indications = append(row.Indications, [2]string{string(i.Indication), i.Message})
	}
	if row.Indications == nil {
		for _, word := range Indications(s) {
			row.Indications = append(row.Indications, [2]string{word, ""})
		}
	}
	row.Conditions = conditions(st.Conditions)
	return row
}

// RestoreRow makes the row of a restore.
func RestoreRow(r *snapshotv1beta1.VirtualMachineRestore) *store.Snapshot {
	row := row(store.Restores, "VirtualMachineRestore", &r.ObjectMeta)
	row.Of, row.Target = r.Spec.VirtualMachineSnapshotName, r.Spec.Target.Name
	row.Phase, row.Stage, _ = strings.Cut(RestoreStage(r), ": ")
	switch row.Phase {
	case "Complete":
		row.Health, row.Ended, row.Kept = store.Well, true, vmsnapshots.Keeps(r)
	case "Failed":
		row.Health, row.Ended, row.Stage, row.Trouble = store.Bad, true, "", row.Stage
	default:
		row.Health = store.Busy
	}
	if row.Deleting && !row.Ended {
		row.Phase = string(snapshotv1beta1.Deleting)
	}
	if r.Status == nil {
		return row
	}
	if r.Status.RestoreTime != nil {
		row.Taken = r.Status.RestoreTime.Time
	}
	for _, v := range r.Status.Restores {
		row.Claims = append(row.Claims, [2]string{v.VolumeName, v.PersistentVolumeClaimName})
	}
	row.Conditions = conditions(r.Status.Conditions)
	return row
}

// ContentRow makes the row of a snapshot's content.
func ContentRow(c *snapshotv1beta1.VirtualMachineSnapshotContent) *store.Content {
	row := &store.Content{Namespace: c.Namespace, Name: c.Name, Memory: savedmemory.Volume(c.UID)}
	states := map[string]snapshotv1beta1.VolumeSnapshotStatus{}
	if c.Status != nil {
		for _, s := range c.Status.VolumeSnapshotStatus {
			states[s.VolumeSnapshotName] = s
		}
	}
	for i := range c.Spec.VolumeBackups {
		b := &c.Spec.VolumeBackups[i]
		claim := &b.PersistentVolumeClaim
		v := store.SnapshotVolume{
			Name: b.VolumeName, Claim: claim.Name, Size: claim.Spec.Resources.Requests[corev1.ResourceStorage],
		}
		if claim.Spec.StorageClassName != nil {
			v.Class = *claim.Spec.StorageClassName
		}
		if b.VolumeSnapshotName != nil {
			v.VolumeSnapshot = *b.VolumeSnapshotName
		}
		s := states[v.VolumeSnapshot]
		v.Ready = s.ReadyToUse != nil && *s.ReadyToUse
		if s.CreationTime != nil {
			v.Taken = s.CreationTime.Time
		}
		if s.Error != nil && s.Error.Message != nil {
			v.Trouble = *s.Error.Message
		}
		row.Volumes = append(row.Volumes, v)
	}
	return row
}

// VolumeSnapshotRow makes the row of one of CSI's.
func VolumeSnapshotRow(v *volumesnapshotv1.VolumeSnapshot) *store.VolumeSnapshot {
	row := &store.VolumeSnapshot{Namespace: v.Namespace, Name: v.Name}
	if v.Status != nil && v.Status.RestoreSize != nil {
		row.Size = *v.Status.RestoreSize
	}
	return row
}

func row(resource, kind string, m *metav1.ObjectMeta) *store.Snapshot {
	return &store.Snapshot{
		Namespace: m.Namespace, Name: m.Name, Resource: resource, Kind: kind, UID: m.UID,
		Created: m.CreationTimestamp.Time, Labels: m.Labels, Deleting: m.DeletionTimestamp != nil,
		Maker: store.MakerOf(m),
	}
}

func conditions(all []snapshotv1beta1.Condition) []store.Condition {
	var out []store.Condition
	for _, c := range all {
		out = append(out, store.Condition{
			Type: string(c.Type), Status: c.Status, Since: c.LastTransitionTime.Time, Reason: c.Reason,
			Message: c.Message,
		})
	}
	return out
}
