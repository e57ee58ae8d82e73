package clone

import (
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// Row makes the row of a clone.
func Row(o *clonev1beta1.VirtualMachineClone) *store.Snapshot {
	row := &store.Snapshot{
		Namespace: o.Namespace, Name: o.Name, Resource: store.Clones, Kind: "VirtualMachineClone", UID: o.UID,
		Created: o.CreationTimestamp.Time, Labels: o.Labels, Deleting: o.DeletionTimestamp != nil,
		Maker: store.MakerOf(o), Health: store.Busy, OfImage: clones.OfImage(o),
	}
	row.Phase, row.Stage = string(o.Status.Phase), Trouble(o)
	switch o.Status.Phase {
	case clonev1beta1.PhaseUnset:
		row.Phase = "Pending"
	case clonev1beta1.Succeeded:
		row.Health, row.Ended, row.Stage = store.Well, true, ""
	case clonev1beta1.Failed:
		row.Health, row.Ended, row.Stage, row.Trouble = store.Bad, true, "", row.Stage
	}
	if s := o.Spec.Source; s != nil && clones.Crosses(o) {
		row.Of = clones.SourceNamespace(o) + "/" + s.Name
	} else if s != nil && s.Kind == clones.KindSnapshot {
		row.Of = s.Name
	} else if s != nil {
		row.Machine = s.Name
	}
	if s := o.Status.SnapshotName; s != nil && row.Of == "" {
		row.Of = *s
	}
	if r := o.Status.RestoreName; r != nil {
		row.Restore = *r
	}
	switch {
	case o.Status.TargetName != nil:
		row.Target = *o.Status.TargetName
	case o.Spec.Target != nil:
		row.Target = o.Spec.Target.Name
	}
	if o.Status.CreationTime != nil {
		row.Taken = o.Status.CreationTime.Time
	}
	for _, c := range o.Status.Conditions {
		row.Conditions = append(row.Conditions, store.Condition{
			Type: string(c.Type), Status: c.Status, Since: c.LastTransitionTime.Time, Reason: c.Reason,
			Message: c.Message,
		})
	}
	return row
}
