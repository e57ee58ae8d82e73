package clonecontroller

import (
	"context"
	"fmt"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// lookAcross finds what a clone has in the source's namespace, its cluster-scoped objects, and, while the snapshot is
// copied, the copies. It reads everything past the cache. An object with the name of a copy is a copy only when its
// owner or label says so by UID.
func (r *Reconciler) lookAcross(ctx context.Context, view *View) error {
	c, remote, namespace := view.Clone, view.Remote, clones.SourceNamespace(view.Clone)
	var err error
	get := func(namespace, name string, into client.Object) bool {
		return lookUp(ctx, r.Live, namespace, name, into, &err)
	}
	origin := &v1beta1.VirtualMachineSnapshot{}
	if get(namespace, view.snapshotName(), origin) {
		if !view.ofMachine() || clones.Made(c, origin) && origin.Spec.Source.Name == c.Spec.Source.Name {
			remote.Origin = origin
		} else {
			remote.foreign(kindSnapshot, origin)
		}
	}
	if err == nil {
		err = r.lookForMade(ctx, view)
	}
	if c.Status.Phase != clonev1beta1.SnapshotInProgress || c.DeletionTimestamp != nil || err != nil {
		return err
	}
	local := &v1beta1.VirtualMachineSnapshot{}
	if view.Snapshot == nil && get(c.Namespace, view.localSnapshot(), local) {
		remote.foreign(kindSnapshot, local)
	}
	content := &v1beta1.VirtualMachineSnapshotContent{}
	view.Content = nil
	if get(c.Namespace, clones.ContentName(c), content) && view.isCopy("VirtualMachineSnapshotContent", content) {
		view.Content = content
	}
	kept := &v1beta1.VirtualMachineSnapshotContent{}
	if s := remote.Origin; s != nil && s.Status != nil && s.Status.VirtualMachineSnapshotContentName != nil &&
		get(namespace, *s.Status.VirtualMachineSnapshotContentName, kept) {
		remote.Content = kept
		r.lookAtVolumes(view, get)
		r.lookAtRevisions(view, get)
	}
	return err
}

// lookForMade finds the VolumeSnapshotContents that the clone has made: also those that somebody has deleted others
// before.
func (r *Reconciler) lookForMade(ctx context.Context, view *View) error {
	list := &snapshotsv1.VolumeSnapshotContentList{}
	err := r.Live.List(ctx, list, client.MatchingLabels{clones.UIDLabel: string(view.Clone.UID)})
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list the VolumeSnapshotContents of clone %s: %w", view.Clone.Name, err)
	}
	view.Remote.Made = map[int]*snapshotsv1.VolumeSnapshotContent{}
	for i := range list.Items {
		if n, made := clones.VolumeNumber(view.Clone, &list.Items[i]); made {
			view.Remote.Made[n] = &list.Items[i]
		}
	}
	return nil
}

// getter reads an object and reports whether it is there.
type getter = func(namespace, name string, into client.Object) bool

// lookAtVolumes finds the VolumeSnapshots of the source, their copies, and who has the names of the copies.
func (r *Reconciler) lookAtVolumes(view *View, get getter) {
	remote, namespace := view.Remote, clones.SourceNamespace(view.Clone)
	for i, backup := range snapshots.Backups(remote.Content) {
		volume := Volume{Backup: backup}
		snapshot, bound := &snapshotsv1.VolumeSnapshot{}, &snapshotsv1.VolumeSnapshotContent{}
		if backup.VolumeSnapshotName != nil && get(namespace, *backup.VolumeSnapshotName, snapshot) {
			volume.Snapshot = snapshot
			if s := snapshot.Status; s != nil && s.BoundVolumeSnapshotContentName != nil &&
				get("", *s.BoundVolumeSnapshotContentName, bound) {
				volume.Bound = bound
			}
		}
		copied, name := &snapshotsv1.VolumeSnapshot{}, clones.VolumeName(view.Clone, i)
		if get(view.Clone.Namespace, name, copied) && view.isCopy("VolumeSnapshot", copied) {
			if from := copied.Spec.Source.VolumeSnapshotContentName; from == nil || *from != name {
				remote.foreign("VolumeSnapshot", copied)
			} else {
				volume.Copy = copied
			}
		}
		content := remote.Made[i]
		switch {
		case content == nil:
			if other := (&snapshotsv1.VolumeSnapshotContent{}); get("", name, other) {
				remote.foreign("VolumeSnapshotContent", other)
			}
		case volume.Copy == nil || content.Spec.VolumeSnapshotRef.UID != volume.Copy.UID:
			remote.foreign("VolumeSnapshotContent", content)
		}
		remote.Volumes = append(remote.Volumes, volume)
	}
}

// lookAtRevisions finds the ControllerRevisions that the snapshot's VM refers to, and their copies.
func (r *Reconciler) lookAtRevisions(view *View, get getter) {
	remote, vm := view.Remote, view.Remote.Content.Spec.Source.VirtualMachine
	remote.Revisions, remote.Copies = map[string]*appsv1.ControllerRevision{}, map[string]*appsv1.ControllerRevision{}
	if vm == nil {
		return
	}
	for _, name := range instancetype.RevisionNames(&vm.Spec) {
		kept, copied := &appsv1.ControllerRevision{}, &appsv1.ControllerRevision{}
		if get(clones.SourceNamespace(view.Clone), name, kept) {
			remote.Revisions[name] = kept
		}
		own := view.revisionName(name)
		if get(view.Clone.Namespace, own, copied) && view.isCopy("ControllerRevision", copied) {
			remote.Copies[own] = copied
		}
	}
}

// isCopy reports an object of the clone's namespace that belongs to the copy of the snapshot; any other is foreign.
func (v *View) isCopy(kind string, object client.Object) bool {
	if v.Snapshot != nil && metav1.IsControlledBy(object, v.Snapshot) {
		return true
	}
	v.Remote.foreign(kind, object)
	return false
}

// foreign notes an object that has the name of one that the clone makes.
func (c *Remote) foreign(kind string, object client.Object) {
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	c.Others = append(c.Others, kind+" "+name)
}
