package clonecontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A clone whose source is in another namespace takes its snapshot there, and makes a copy of that in its own
// namespace: a VirtualMachineSnapshot with a content and VolumeSnapshots, which are bound to VolumeSnapshotContents
// of their own that have the handles of the originals. From there on it is as any other clone. Each copy is made
// before the VolumeSnapshotContent that is bound to it, which names it by its UID, so that nobody can put another in
// its place; no copy erases data of the source, since its policy is Retain.

// Reasons of events of clones to another namespace.
const (
	// reasonNotAdmitted is the reason of a clone that virt-api has not admitted.
	reasonNotAdmitted = "NotAdmitted"
	// reasonObjectExists is the reason of a clone whose objects' names are taken.
	reasonObjectExists = "ObjectExists"
	// reasonLeft is the reason for objects that the new VM names and that are not copied.
	reasonLeft = "ReferencesNotCopied"
)

// Remote has the objects of a clone whose source is in another namespace.
type Remote struct {
	// Origin is the snapshot in the source's namespace: the temporary one, or the one that is cloned. It is nil when it
	// does not exist, or is not this clone's. Content is its content.
	Origin  *v1beta1.VirtualMachineSnapshot
	Content *v1beta1.VirtualMachineSnapshotContent
	// Volumes are the volumes of Content.
	Volumes []Volume
	// Revisions are the ControllerRevisions that the VM in Content refers to, and their copies, by name.
	Revisions, Copies map[string]*appsv1.ControllerRevision
	// Made are the VolumeSnapshotContents of the clone by the number of their volume.
	Made map[int]*snapshotsv1.VolumeSnapshotContent
	// Others are objects by kind and name that have the names of the clone's, and that it has not made.
	Others []string
}

// Volume is a volume that is copied.
type Volume struct {
	Backup v1beta1.VolumeBackup
	// Snapshot and Bound are the VolumeSnapshot of the source, and the VolumeSnapshotContent that it is bound to.
	Snapshot *snapshotsv1.VolumeSnapshot
	Bound    *snapshotsv1.VolumeSnapshotContent
	// Copy is the VolumeSnapshot in the clone's namespace.
	Copy *snapshotsv1.VolumeSnapshot
}

// localSnapshot returns the name of the snapshot in the clone's namespace that its restore is made from.
func (v *View) localSnapshot() string {
	if v.Remote != nil {
		return SnapshotName(v.Clone)
	}
	return v.snapshotName()
}

// origin returns the name, for messages, of the snapshot in the source's namespace.
func (v *View) origin() string { return clones.SourceNamespace(v.Clone) + "/" + v.snapshotName() }

// snapshotRemote asks for the snapshot in the namespace of the source, once nothing can be left behind there.
func (v *View) snapshotRemote() Step {
	c, remote := v.Clone, v.Remote
	pinned, namespace := c.Annotations[clones.UIDAnnotation], clones.SourceNamespace(c)
	source := fmt.Sprintf("%s %s/%s", c.Spec.Source.Kind, namespace, c.Spec.Source.Name)
	switch {
	case pinned == "" || namespace == c.Namespace:
		return v.fail(reasonNotAdmitted, fmt.Sprintf("virt-api has not admitted the clone of %s: the annotation %s is "+
			"missing; make the clone anew", source, clones.UIDAnnotation))
	case v.Other != nil:
		return v.taken()
	case len(remote.Others) > 0:
		return v.fail(reasonObjectExists, fmt.Sprintf("%s exists, and this clone did not make it; delete it and make "+
			"another clone", strings.Join(remote.Others, ", ")))
	case !slices.Contains(c.Finalizers, clones.Finalizer):
		return Step{AddFinalizer: true}
	case v.ofMachine() && c.Status.SnapshotName == nil:
		if v.Source == nil {
			return v.fail(reasonNoSource, source+" does not exist")
		}
		if string(v.Source.UID) != pinned {
			return v.fail(reasonNoSource, source+" is not the one that the clone was made for; make another clone")
		}
		status := v.phase(clonev1beta1.SnapshotInProgress)
		status.SnapshotName = new(SnapshotName(c))
		step := Step{Status: status}
		if remote.Origin == nil {
			step.CreateSnapshot = v.newSnapshot()
			step.Events = []Event{{
				corev1.EventTypeNormal, reasonSnapshotCreated,
				fmt.Sprintf("created snapshot %s for clone %s", v.origin(), c.Name),
			}}
		}
		return step
	}
	if gone := v.lost(); gone != "" {
		return v.fail(reasonSnapshotDeleted, gone)
	}
	if !snapshots.Restorable(remote.Origin) {
		return Step{}
	}
	return v.copyObjects()
}

// lost returns why the snapshot in the source's namespace cannot be used, or "" when it can.
func (v *View) lost() string {
	origin, pinned := v.Remote.Origin, v.Clone.Annotations[clones.UIDAnnotation]
	switch {
	case origin == nil || origin.DeletionTimestamp != nil:
		return fmt.Sprintf("snapshot %s does not exist anymore", v.origin())
	case snapshots.Failed(origin):
		return failedSnapshot(v.origin(), origin)
	case !v.ofMachine() && string(origin.UID) != pinned:
		return fmt.Sprintf("snapshot %s is not the one that the clone was made for; make another clone", v.origin())
	case v.ofMachine() && origin.Status != nil && origin.Status.SourceUID != nil &&
		string(*origin.Status.SourceUID) != pinned:
		return fmt.Sprintf("snapshot %s is not of the VM that the clone was made for; make another clone", v.origin())
	}
	return ""
}

// copyObjects makes the copy of the snapshot: it, its content, ControllerRevisions and VolumeSnapshots.
func (v *View) copyObjects() Step {
	remote := v.Remote
	if remote.Content == nil || remote.Content.Spec.Source.VirtualMachine == nil ||
		remote.Content.Spec.Source.VirtualMachine.Spec.Template == nil {
		return v.waitFor(fmt.Sprintf("snapshot %s has no content", v.origin()))
	}
	if v.Snapshot == nil {
		return Step{Create: []client.Object{v.copySnapshot()}}
	}
	var creates []client.Object
	for _, name := range instancetype.RevisionNames(&remote.Content.Spec.Source.VirtualMachine.Spec) {
		kept := remote.Revisions[name]
		if kept == nil {
			return v.waitFor(fmt.Sprintf("ControllerRevision %s/%s is not there",
				clones.SourceNamespace(v.Clone), name))
		}
		if own := v.revisionName(name); remote.Copies[own] == nil {
			creates = append(creates, v.copyRevision(kept, own))
		}
	}
	if v.Content == nil {
		creates = append(creates, v.copyContent())
	}
	volumes, waits := v.copyVolumes()
	creates = append(creates, volumes...)
	switch {
	case len(creates) > 0:
		return Step{Create: creates}
	case waits != "":
		return v.waitFor(waits)
	}
	return Step{
		Copied: v.copied(), Status: v.phase(clonev1beta1.RestoreInProgress), Events: []Event{{
			corev1.EventTypeNormal, reasonSnapshotReady,
			fmt.Sprintf("snapshot %s for clone %s is ready to use", v.origin(), v.Clone.Name),
		}},
	}
}

// copied returns the statuses of a copy that is whole: what the snapshot says of the guest is true of the copy.
func (v *View) copied() *Copied {
	origin := v.Remote.Origin.Status
	return &Copied{
		Content: v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true), CreationTime: origin.CreationTime},
		Snapshot: v1beta1.VirtualMachineSnapshotStatus{
			Phase: v1beta1.Succeeded, ReadyToUse: new(true), SourceUID: origin.SourceUID,
			CreationTime:                      origin.CreationTime,
			Indications:                       origin.Indications, //nolint:staticcheck // KubeVirt fills it in, too
			VirtualMachineSnapshotContentName: &v.Content.Name,
		},
	}
}

// copyVolumes returns the VolumeSnapshots and their contents that are to be made, and what they wait for.
func (v *View) copyVolumes() (creates []client.Object, waits string) {
	for i := range v.Remote.Volumes {
		o := &v.Remote.Volumes[i]
		if waits = o.trouble(); waits != "" {
			return creates, waits
		}
		switch {
		case o.Copy == nil:
			creates = append(creates, v.copyVolume(i))
		case v.Remote.Made[i] == nil:
			creates = append(creates, v.copyBinding(i))
		}
	}
	for i := range v.Remote.Volumes {
		copied := v.Remote.Volumes[i].Copy
		if copied != nil && (copied.Status == nil || copied.Status.ReadyToUse == nil || !*copied.Status.ReadyToUse) {
			return creates, fmt.Sprintf("VolumeSnapshot %s/%s is not ready to use", copied.Namespace, copied.Name)
		}
	}
	return creates, ""
}

// trouble returns why a volume's snapshot has no handle that may be used, or "" when it has one. A VolumeSnapshot and
// its content name each other, so that one of another namespace cannot be taken by naming it.
func (o *Volume) trouble() string {
	if o.Backup.VolumeSnapshotName == nil || o.Snapshot == nil || o.Snapshot.DeletionTimestamp != nil {
		return fmt.Sprintf("volume %s has no VolumeSnapshot", o.Backup.VolumeName)
	}
	name, bound := o.Snapshot.Namespace+"/"+o.Snapshot.Name, o.Bound
	if bound == nil || bound.Status == nil || bound.Status.SnapshotHandle == nil || *bound.Status.SnapshotHandle == "" {
		return fmt.Sprintf("VolumeSnapshot %s is not bound yet", name)
	}
	ref := bound.Spec.VolumeSnapshotRef
	if ref.Namespace != o.Snapshot.Namespace || ref.Name != o.Snapshot.Name || ref.UID != o.Snapshot.UID {
		return fmt.Sprintf("VolumeSnapshotContent %s is not bound to VolumeSnapshot %s", bound.Name, name)
	}
	return ""
}

// waitFor returns the step of a clone that cannot go on yet, and says why.
func (v *View) waitFor(text string) Step {
	step := Step{Status: v.saying(text)}
	step.RequeueAfter = again
	return step
}

func (v *View) copySnapshot() *v1beta1.VirtualMachineSnapshot {
	return &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Clone.Namespace, Name: SnapshotName(v.Clone), OwnerReferences: ownerOf(v.Clone),
			Annotations: map[string]string{clones.CopiedAnnotation: v.origin()},
		},
		Spec: v1beta1.VirtualMachineSnapshotSpec{Source: v.Remote.Origin.Spec.Source},
	}
}

// owned returns the metadata of an object of the copy: it goes with the VirtualMachineSnapshot.
func (v *View) owned(name string) metav1.ObjectMeta {
	kind := v1beta1.SchemeGroupVersion.WithKind(kindSnapshot)
	return metav1.ObjectMeta{
		Namespace: v.Clone.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.Snapshot, kind)},
	}
}

// copyContent returns the content with the VolumeSnapshots of the clone. It names no snapshot, so that no
// VolumeSnapshots are made for it.
func (v *View) copyContent() *v1beta1.VirtualMachineSnapshotContent {
	source := v.Remote.Content.Spec.Source.VirtualMachine.DeepCopy()
	instancetype.RenameRevisions(&source.Spec, v.revisionName)
	if source.Namespace == "" {
		source.Namespace = clones.SourceNamespace(v.Clone)
	}
	content := &v1beta1.VirtualMachineSnapshotContent{ObjectMeta: v.owned(clones.ContentName(v.Clone))}
	content.Spec.Source.VirtualMachine = source
	for i := range v.Remote.Volumes {
		backup := v.Remote.Volumes[i].Backup
		backup.VolumeSnapshotName = new(clones.VolumeName(v.Clone, i))
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, backup)
	}
	return content
}

func (v *View) copyVolume(i int) *snapshotsv1.VolumeSnapshot {
	name := clones.VolumeName(v.Clone, i)
	// That of an image has no owner: the garbage collector would delete it with a clone that waits until its claim is
	// filled.
	meta := metav1.ObjectMeta{
		Namespace: v.Clone.Namespace, Name: name, Labels: map[string]string{clones.UIDLabel: string(v.Clone.UID)},
	}
	if v.Image == nil {
		meta = v.owned(name)
	}
	return &snapshotsv1.VolumeSnapshot{
		ObjectMeta: meta,
		Spec: snapshotsv1.VolumeSnapshotSpec{
			Source:                  snapshotsv1.VolumeSnapshotSource{VolumeSnapshotContentName: &name},
			VolumeSnapshotClassName: v.Remote.Volumes[i].Bound.Spec.VolumeSnapshotClassName,
		},
	}
}

// copyBinding has the handle of the source's snapshot for the clone's VolumeSnapshot alone.
func (v *View) copyBinding(i int) *snapshotsv1.VolumeSnapshotContent {
	o := &v.Remote.Volumes[i]
	return &snapshotsv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name:   clones.VolumeName(v.Clone, i),
			Labels: map[string]string{clones.UIDLabel: string(v.Clone.UID)},
			Annotations: map[string]string{
				clones.CloneAnnotation: v.Clone.Namespace + "/" + v.Clone.Name,
			},
		},
		Spec: snapshotsv1.VolumeSnapshotContentSpec{
			DeletionPolicy: snapshotsv1.VolumeSnapshotContentRetain, Driver: o.Bound.Spec.Driver,
			VolumeSnapshotClassName: o.Bound.Spec.VolumeSnapshotClassName,
			SourceVolumeMode:        o.Bound.Spec.SourceVolumeMode,
			Source: snapshotsv1.VolumeSnapshotContentSource{
				SnapshotHandle: o.Bound.Status.SnapshotHandle,
			},
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotsv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: o.Copy.Namespace, Name: o.Copy.Name, UID: o.Copy.UID,
			},
		},
	}
}

// revisionName returns the name of the copy of a ControllerRevision, from which the restore makes the new VM's.
func (v *View) revisionName(name string) string {
	if own := snapshots.RevisionName(name, v.snapshotName(), v.localSnapshot()); own != name ||
		strings.Contains(name, v.localSnapshot()) {
		return own
	}
	return v.localSnapshot() + "-" + name
}

func (v *View) copyRevision(kept *appsv1.ControllerRevision, name string) *appsv1.ControllerRevision {
	meta := v.owned(name)
	meta.Labels = maps.Clone(kept.Labels)
	return &appsv1.ControllerRevision{ObjectMeta: meta, Data: *kept.Data.DeepCopy(), Revision: kept.Revision}
}

// left names what the new VM refers to and is not copied, or returns "" when everything is.
func (v *View) left() string {
	if v.Remote == nil || v.Target == nil {
		return ""
	}
	return clones.LeftText(&v.Target.Spec, v.Clone.Namespace)
}

// end releases a clone that is deleted, once nothing of it is left outside its namespace. A clone whose new VM has
// claims without a volume waits for those claims, since what fills them would be gone.
func (v *View) end() Step {
	c := v.Clone
	if !slices.Contains(c.Finalizers, clones.Finalizer) {
		return Step{}
	}
	if v.Target != nil && v.Target.DeletionTimestamp == nil && len(v.Unbound) > 0 && v.lost() == "" {
		return Step{Status: v.saying(fmt.Sprintf(
			"the clone is deleted once claims %s are bound; start VM %s, or delete it",
			strings.Join(v.Unbound, ", "), v.Target.Name))}
	}
	if step := v.discard(); step.deletes() {
		return step
	}
	return Step{RemoveFinalizer: true}
}

// deletes reports a step that takes something away.
func (s *Step) deletes() bool {
	return s.DeleteRestore != nil || s.DeleteSnapshot != nil || len(s.DeleteVolumes) > 0 || len(s.DeleteContents) > 0 ||
		s.DeleteOrigin != nil
}

// deleteRemote takes away what the clone has made outside its namespace, and then its finalizer.
func (v *View) deleteRemote() Step {
	if v.Remote == nil {
		return Step{}
	}
	step := Step{}
	for _, n := range slices.Sorted(maps.Keys(v.Remote.Made)) {
		if o := v.Remote.Made[n]; o.DeletionTimestamp == nil {
			step.DeleteContents = append(step.DeleteContents, o)
		}
	}
	if len(step.DeleteContents) > 0 {
		return step
	}
	if origin := v.Remote.Origin; v.ofMachine() && origin != nil && origin.DeletionTimestamp == nil {
		return Step{DeleteOrigin: origin}
	}
	return Step{RemoveFinalizer: slices.Contains(v.Clone.Finalizers, clones.Finalizer)}
}
