package clonecontroller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// snapshotName returns the name of the snapshot that the clone is made from, or "" when there is none yet.
func (v *View) snapshotName() string { return snapshotOf(v.Clone) }

func snapshotOf(c *clonev1beta1.VirtualMachineClone) string {
	if c.Spec.Source.Kind == kindSnapshot {
		return c.Spec.Source.Name
	}
	return SnapshotName(c)
}

func ownerOf(c *clonev1beta1.VirtualMachineClone) []metav1.OwnerReference {
	kind := clonev1beta1.VirtualMachineCloneKind
	return []metav1.OwnerReference{*metav1.NewControllerRef(c, kind.GroupVersion().WithKind(kind.Kind))}
}

func (v *View) newSnapshot() *v1beta1.VirtualMachineSnapshot {
	c := v.Clone
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: SnapshotName(c), OwnerReferences: ownerOf(c)}
	if v.Remote != nil { // owners are of one namespace
		meta.Namespace, meta.OwnerReferences = clones.SourceNamespace(c), nil
		meta.Labels = map[string]string{clones.UIDLabel: string(c.UID)}
		meta.Annotations = map[string]string{clones.CloneAnnotation: c.Namespace + "/" + c.Name}
	}
	return &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: meta,
		Spec: v1beta1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{
			APIGroup: new(v1.GroupVersion.Group), Kind: kindMachine, Name: c.Spec.Source.Name,
		}},
	}
}

func (v *View) newRestore(patches []string) *v1beta1.VirtualMachineRestore {
	c := v.Clone
	target := corev1.TypedLocalObjectReference{Kind: kindMachine}
	if c.Spec.Target != nil {
		target = *c.Spec.Target
	}
	if target.APIGroup == nil {
		target.APIGroup = new(v1.GroupVersion.Group)
	}
	if target.Name == "" {
		source := v.Content.Spec.Source.VirtualMachine.Name
		target.Name = names.Shorten(source+"-clone", names.MaxLabel-len(v.Suffix)-1) + "-" + v.Suffix
	}
	restore := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: RestoreName(c), OwnerReferences: ownerOf(c)},
		Spec: v1beta1.VirtualMachineRestoreSpec{
			Target: target, VirtualMachineSnapshotName: v.Snapshot.Name, Patches: patches,
		},
	}
	if policy := c.Spec.VolumeNamePolicy; policy != nil {
		restore.Spec.VolumeRestorePolicy = new(policy.ToVolumeRestorePolicy())
	}
	return restore
}
