package restorecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Reconciler reads restores, snapshots, their contents and VolumeSnapshots from Client's cache, and everything that it
// changes past it: VMs, claims, DataVolumes and ControllerRevisions; and, before it deletes a claim for a new one, the
// VMs, VMIs and pods that may use it. It creates and changes all of these, deletes
// claims and DataVolumes, and writes status.restoreInProgress of VMs and the restores' status.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Now      func() time.Time
	// CDI and Snapshots read and write DataVolumes and VolumeSnapshots, if the cluster has them.
	CDI       DataVolumes
	Snapshots VolumeSnapshots

	writes *frame.Writes
}

// DataVolumes has the methods of cdi.Access that a restore calls.
type DataVolumes interface {
	Installed() bool
	Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error)
	Follow(c controller.Controller, users handler.MapFunc)
}

// VolumeSnapshots has the methods of volumesnapshots.Access that a restore calls.
type VolumeSnapshots interface {
	Served() bool
	Get(ctx context.Context, namespace, name string) (*snapshotsv1.VolumeSnapshot, error)
	Follow(c controller.Controller, users handler.MapFunc)
}

// Frame returns the reconciler's frame, with its own log of writes.
func (r *Reconciler) Frame() *frame.Frame[*v1beta1.VirtualMachineRestore, View, Step] {
	r.writes = frame.NewWrites(r.Client)
	return &frame.Frame[*v1beta1.VirtualMachineRestore, View, Step]{
		Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
	}
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	of := func(concerns func(*v1beta1.VirtualMachineRestore, client.Object) bool) handler.MapFunc {
		return func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.unfinished(ctx, object, concerns)
		}
	}
	target := handler.EnqueueRequestsFromMapFunc(of(isTarget))
	snapshot := handler.EnqueueRequestsFromMapFunc(of(anyRestore))
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinerestore").
		For(&v1beta1.VirtualMachineRestore{}).
		Watches(&v1.VirtualMachine{}, target).
		Watches(&v1.VirtualMachineInstance{}, target).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(of(makes))).
		Watches(&v1beta1.VirtualMachineSnapshot{}, snapshot).
		Watches(&v1beta1.VirtualMachineSnapshotContent{}, snapshot).
		Build(r.Frame())
	if err != nil {
		return err
	}
	r.CDI.Follow(built, of(makes))
	r.Snapshots.Follow(built, of(anyRestore))
	return nil
}

// unfinished returns the restores of an object's namespace that it concerns and that have something to do.
func (r *Reconciler) unfinished(
	ctx context.Context, object client.Object, concerns func(*v1beta1.VirtualMachineRestore, client.Object) bool,
) []reconcile.Request {
	var list v1beta1.VirtualMachineRestoreList
	err := r.Client.List(ctx, &list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list restores")
		return nil
	}
	return frame.Requests(list.Items, func(o *v1beta1.VirtualMachineRestore) bool {
		return (!snapshots.RestoreEnded(o) || o.DeletionTimestamp != nil) && concerns(o, object)
	})
}

func anyRestore(*v1beta1.VirtualMachineRestore, client.Object) bool { return true }

func isTarget(o *v1beta1.VirtualMachineRestore, object client.Object) bool {
	return o.Spec.Target.Name == object.GetName()
}

// makes reports a claim or DataVolume that is, or is to be, of a restore.
func makes(o *v1beta1.VirtualMachineRestore, object client.Object) bool {
	if o.Status == nil {
		return false
	}
	for i := range o.Status.Restores {
		entry := &o.Status.Restores[i]
		if entry.PersistentVolumeClaimName == object.GetName() ||
			entry.DataVolumeName != nil && *entry.DataVolumeName == object.GetName() {
			return true
		}
	}
	return false
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, restore *v1beta1.VirtualMachineRestore) (View, error) {
	view := View{
		Restore: restore, Now: r.Now(), Served: r.Snapshots.Served(), CDI: r.CDI.Installed(),
		Revisions: map[string]*appsv1.ControllerRevision{}, Made: map[string]*corev1.PersistentVolumeClaim{},
		DataVolumes: map[string]*cdiv1.DataVolume{},
	}
	var err error
	over := restore.Status == nil || snapshots.RestoreEnded(restore) && restore.DeletionTimestamp == nil
	reader := r.Live
	if over {
		reader = r.Client
	}
	view.VM, err = frame.Found(ctx, reader, restore.Namespace, restore.Spec.Target.Name, &v1.VirtualMachine{})
	if over || err != nil {
		return view, err
	}
	view.VMI, err = frame.Found(ctx, r.Live, restore.Namespace, restore.Spec.Target.Name, &v1.VirtualMachineInstance{})
	if err != nil {
		return view, err
	}
	return view, errors.Join(r.lookAtSnapshot(ctx, &view), r.lookAtMade(ctx, &view), r.lookAtRevisions(ctx, &view),
		r.lookAtKept(ctx, &view), r.lookAtUsers(ctx, &view))
}

// lookAtSnapshot finds the snapshot, its content, and what exists of its volumes.
func (r *Reconciler) lookAtSnapshot(ctx context.Context, view *View) error {
	restore := view.Restore
	if snapshots.Undoes(restore) != "" {
		return nil // its claims are there already
	}
	snapshot, err := frame.Found(ctx, r.Client, restore.Namespace, restore.Spec.VirtualMachineSnapshotName,
		&v1beta1.VirtualMachineSnapshot{})
	if snapshot == nil {
		return err
	}
	view.Snapshot = snapshot
	if snapshot.Status == nil || snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return nil
	}
	view.Content, err = frame.Found(ctx, r.Client, restore.Namespace,
		*snapshot.Status.VirtualMachineSnapshotContentName,
		&v1beta1.VirtualMachineSnapshotContent{})
	if view.Content == nil {
		return err
	}
	if source := view.Content.Spec.Source.VirtualMachine; source != nil {
		vm, err := frame.Found(ctx, r.Live, restore.Namespace, source.Name, &v1.VirtualMachine{})
		if err != nil {
			return err
		}
		uid := snapshot.Status.SourceUID
		view.SourceExists = vm != nil && (uid == nil || vm.UID == *uid)
	}
	for _, backup := range snapshots.Backups(view.Content) {
		volume, err := r.volume(ctx, view, backup)
		if err != nil {
			return err
		}
		view.Volumes = append(view.Volumes, volume)
	}
	return nil
}

// lookAtUsers finds who uses the claims of the namespace, where that decides something. It comes after the claims were
// read: who takes one later finds it with another UID, or being deleted.
func (r *Reconciler) lookAtUsers(ctx context.Context, view *View) error {
	if !view.asksForUsers() {
		return nil
	}
	var vms v1.VirtualMachineList
	var vmis v1.VirtualMachineInstanceList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&vms, &vmis, &pods} {
		if err := r.Live.List(ctx, list, client.InNamespace(view.Restore.Namespace)); err != nil {
			return fmt.Errorf("look for users of the VM's claims: %w", err)
		}
	}
	view.Users = claims.Users{}
	for i := range vms.Items {
		view.Users.AddVM(&vms.Items[i])
	}
	for i := range vmis.Items {
		view.Users.AddVMI(&vmis.Items[i])
	}
	view.Users.AddPods(pods.Items)
	return nil
}

func (r *Reconciler) volume(ctx context.Context, view *View, backup v1beta1.VolumeBackup) (Volume, error) {
	namespace, volume := view.Restore.Namespace, Volume{Backup: backup}
	var err error
	if backup.VolumeSnapshotName != nil {
		if volume.Snapshot, err = r.Snapshots.Get(ctx, namespace, *backup.VolumeSnapshotName); err != nil {
			return volume, err
		}
	}
	name := restoredName(view.Restore, backup.VolumeName, backup.PersistentVolumeClaim.Name)
	volume.Claim, err = frame.Found(ctx, r.Live, namespace, name, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return volume, err
	}
	if volume.Claim != nil && !bound(volume.Claim) {
		if volume.Late, err = r.late(ctx, volume.Claim); err != nil {
			return volume, err
		}
	}
	if volume.DataVolume, err = r.CDI.Get(ctx, namespace, name); err != nil {
		return volume, err
	}
	if template := view.template(backup.VolumeName); template != nil {
		err = r.lookAtDataVolume(ctx, view, restoredName(view.Restore, backup.VolumeName, template.Name))
	}
	return volume, err
}

// late reports a claim whose StorageClass binds it when a pod uses it.
func (r *Reconciler) late(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	name := storageClassOf(claim)
	if name == "" {
		return false, nil
	}
	class, err := frame.Found(ctx, r.Live, "", name, &storagev1.StorageClass{})
	if err != nil || class == nil {
		return false, err
	}
	mode := class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

func storageClassOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// lookAtMade finds what the status lists, and the claims that have, or had, the target's state.
func (r *Reconciler) lookAtMade(ctx context.Context, view *View) error {
	status := view.Restore.Status
	for _, o := range status.Restores {
		claim, err := frame.Found(ctx, r.Live, view.Restore.Namespace, o.PersistentVolumeClaimName,
			&corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		view.Made[o.PersistentVolumeClaimName] = claim
		if o.DataVolumeName != nil {
			if err := r.lookAtDataVolume(ctx, view, *o.DataVolumeName); err != nil {
				return err
			}
		}
	}
	for _, name := range status.DeletedDataVolumes {
		if err := r.lookAtDataVolume(ctx, view, name); err != nil {
			return err
		}
	}
	if view.VM == nil || view.VM.Spec.Template == nil || !snapshots.KeepsState(view.VM, nil) {
		return nil
	}
	for _, labelled := range []struct {
		key, value string
		into       *[]*corev1.PersistentVolumeClaim
	}{
		{vmstate.Prefix, names.LabelValue(view.VM.Name), &view.States},
		{replacedLabel, replacedValue(view.VM.Name), &view.Replaced},
	} {
		var list corev1.PersistentVolumeClaimList
		err := r.Live.List(ctx, &list, client.InNamespace(view.VM.Namespace),
			client.MatchingLabels{labelled.key: labelled.value})
		if err != nil {
			return fmt.Errorf("list claims of the VM's state: %w", err)
		}
		for i := range list.Items {
			if claim := &list.Items[i]; len(claim.OwnerReferences) == 0 || vmstate.Owned(claim, view.VM.UID) {
				*labelled.into = append(*labelled.into, claim)
			}
		}
	}
	return nil
}

func (r *Reconciler) lookAtDataVolume(ctx context.Context, view *View, name string) error {
	dv, err := r.CDI.Get(ctx, view.Restore.Namespace, name)
	if err != nil || dv == nil {
		return err
	}
	view.DataVolumes[name] = dv
	return nil
}

// lookAtRevisions finds the ControllerRevisions of the snapshot's VM and of the restored one.
func (r *Reconciler) lookAtRevisions(ctx context.Context, view *View) error {
	var wanted []string
	if view.Content != nil && view.Content.Spec.Source.VirtualMachine != nil {
		for _, name := range instancetype.RevisionNames(&view.Content.Spec.Source.VirtualMachine.Spec) {
			wanted = append(wanted, name,
				snapshots.RevisionName(name, view.Restore.Spec.VirtualMachineSnapshotName,
					view.Restore.Spec.Target.Name))
		}
	}
	if view.VM != nil {
		wanted = append(wanted, instancetype.RevisionNames(&view.VM.Spec)...)
	}
	if view.keeps() {
		wanted = append(wanted, snapshots.FormerName(view.Restore, view.VM.Generation))
	}
	for _, name := range wanted {
		revision, err := frame.Found(ctx, r.Live, view.Restore.Namespace, name, &appsv1.ControllerRevision{})
		if err != nil {
			return err
		}
		if revision != nil {
			view.Revisions[name] = revision
		}
	}
	return nil
}
