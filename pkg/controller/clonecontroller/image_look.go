package clonecontroller

import (
	"context"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// lookImage gathers what Next wants to know of a clone that copies an image. It reads everything past the cache, and
// takes an object for the clone's only when its label says so by UID, and the claim when it is filled by the clone's
// VolumeSnapshot, of which there is none before the phase RestoreInProgress.
func (r *Reconciler) lookImage(ctx context.Context, view *View) error {
	c, image, remote := view.Clone, &Image{}, &Remote{}
	view.Image, view.Remote = image, remote
	target := types.NamespacedName{Namespace: c.Namespace}
	if c.Spec.Target != nil {
		target.Name = c.Spec.Target.Name
	}
	over := c.Status.Phase == clonev1beta1.Succeeded && c.Status.SnapshotName == nil
	if over && c.DeletionTimestamp == nil && r.Client.Get(ctx, target, &corev1.PersistentVolumeClaim{}) == nil {
		return frame.ErrNothing
	}
	var err error
	get := func(namespace, name string, into client.Object) bool {
		return lookUp(ctx, r.Live, namespace, name, into, &err)
	}
	claim, source := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	if target.Name != "" && get(target.Namespace, target.Name, claim) {
		early := c.Status.Phase == clonev1beta1.PhaseUnset || c.Status.Phase == clonev1beta1.SnapshotInProgress
		if clones.FilledBy(c, claim) && !early {
			image.Claim = claim
		} else {
			image.Other = true
		}
	}
	if get(clones.SourceNamespace(c), c.Spec.Source.Name, source) {
		image.Source = source
	}
	if err == nil {
		err = r.lookForMade(ctx, view)
	}
	view.lookAtImage(get)
	if err != nil || image.Source == nil || c.Status.Phase != clonev1beta1.SnapshotInProgress ||
		c.Status.SnapshotName != nil {
		return err
	}
	if settled, err := r.Classes.Settled(ctx); err != nil || !settled {
		if err == nil {
			err = frame.ErrStale
		}
		return err
	}
	classes, err := r.Classes.ReadClasses(ctx)
	if err != nil {
		return err
	}
	class := ""
	if source.Spec.StorageClassName != nil {
		class = *source.Spec.StorageClassName
	}
	image.Class, image.Unclassed = classes.For(class, c.Spec.Source.Name)
	return nil
}

// lookAtImage finds the VolumeSnapshots of an image, and who has their names.
func (v *View) lookAtImage(get getter) {
	c, image, remote := v.Clone, v.Image, v.Remote
	name := clones.OriginName(c)
	volume := Volume{Backup: v1beta1.VolumeBackup{VolumeName: c.Spec.Source.Name, VolumeSnapshotName: &name}}
	origin, bound := &snapshotsv1.VolumeSnapshot{}, &snapshotsv1.VolumeSnapshotContent{}
	if get(clones.SourceNamespace(c), name, origin) {
		from := origin.Spec.Source.PersistentVolumeClaimName
		if clones.Made(c, origin) && from != nil && *from == c.Spec.Source.Name {
			image.Origin, volume.Snapshot = origin, origin
		} else {
			remote.foreign("VolumeSnapshot", origin)
		}
	}
	if s := origin.Status; image.Origin != nil && s != nil && s.BoundVolumeSnapshotContentName != nil &&
		get("", *s.BoundVolumeSnapshotContentName, bound) {
		volume.Bound = bound
	}
	copied, copyName := &snapshotsv1.VolumeSnapshot{}, clones.VolumeName(c, 0)
	if get(c.Namespace, copyName, copied) {
		from := copied.Spec.Source.VolumeSnapshotContentName
		if clones.Made(c, copied) && from != nil && *from == copyName {
			volume.Copy = copied
		} else {
			remote.foreign("VolumeSnapshot", copied)
		}
	}
	content := remote.Made[0]
	if other := (&snapshotsv1.VolumeSnapshotContent{}); content == nil && get("", copyName, other) {
		remote.foreign("VolumeSnapshotContent", other)
	}
	if content != nil && (volume.Copy == nil || content.Spec.VolumeSnapshotRef.UID != volume.Copy.UID) {
		remote.foreign("VolumeSnapshotContent", content)
	}
	remote.Volumes = []Volume{volume}
}
