package exportcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, export *v1beta1.VirtualMachineExport) (View, error) {
	view := View{
		Export: export, Now: r.Now(), Served: r.Snapshots.Served(), Token: r.Token(),
		Facts: Facts{Config: r.Config(), Image: r.Image, ImagePullPolicy: r.ImagePullPolicy},
	}
	if export.DeletionTimestamp != nil {
		return view, frame.ErrNothing // the garbage collector takes what is the export's
	}
	name := exports.Name(export.Name)
	var err error
	if view.Pod, err = frame.Found(ctx, r.Live, export.Namespace, name, &corev1.Pod{}); err != nil {
		return view, err
	}
	if view.Service, err = frame.Found(ctx, r.Live, export.Namespace, name, &corev1.Service{}); err != nil {
		return view, err
	}
	source := export.Spec.Source.Name
	switch exports.SourceKind(&export.Spec.Source) {
	case exports.KindVM:
		err = r.lookAtVM(ctx, &view)
	case exports.KindSnapshot:
		err = r.lookAtSnapshot(ctx, &view)
	case exports.KindClaim:
		err = r.lookAtClaim(ctx, &view, source, nil)
	}
	if err != nil {
		return view, err
	}
	if exports.SourceKind(&export.Spec.Source) != exports.KindSnapshot {
		if err := r.lookForUsers(ctx, &view); err != nil {
			return view, err
		}
	}
	if view.Pod == nil && view.VM != nil {
		if err := r.expand(ctx, &view); err != nil {
			return view, err
		}
	}
	if view.Pod != nil && isReady(view.Pod) {
		entrance, err := r.Entrances.Find(ctx, view.Now)
		view.Entrance, view.Unsettled = entrance, errors.Is(err, frame.ErrStale)
		if err != nil && !view.Unsettled {
			return view, err
		}
	}
	// A certificate is made only for an export that gets it now.
	if identityOf(view.Service) == nil && Next(view).CreateIdentity {
		view.Issued, err = issue(export, r.Suffix(), view.Now)
	}
	return view, err
}

// lookAtVM finds a VM, whether it runs, and its claims with that of its state.
func (r *Reconciler) lookAtVM(ctx context.Context, view *View) error {
	namespace, name := view.Export.Namespace, view.Export.Spec.Source.Name
	vm, err := frame.Found(ctx, r.Live, namespace, name, &v1.VirtualMachine{})
	if vm == nil || vm.Spec.Template == nil {
		return err
	}
	view.VM = vm
	vmi, err := frame.Found(ctx, r.Live, namespace, name, &v1.VirtualMachineInstance{})
	if err != nil {
		return err
	}
	view.Running = life.Alive(vmi)
	for i := range vm.Spec.Template.Spec.Volumes {
		claim := claims.Name(&vm.Spec.Template.Spec.Volumes[i])
		if claim == "" || view.claimOf(claim) != nil {
			continue
		}
		if err := r.lookAtClaim(ctx, view, claim, &vm.Spec.Template.Spec); err != nil {
			return err
		}
	}
	if !snapshots.KeepsState(vm, nil) {
		return nil
	}
	var states corev1.PersistentVolumeClaimList
	err = r.Live.List(ctx, &states, client.InNamespace(namespace),
		client.MatchingLabels{vmstate.Prefix: names.LabelValue(name)})
	if err != nil {
		return fmt.Errorf("list claims of the VM's state: %w", err)
	}
	var labelled []*corev1.PersistentVolumeClaim
	for i := range states.Items {
		labelled = append(labelled, &states.Items[i])
	}
	if state := vmstate.Choose(name, vm.UID, labelled); state != nil {
		view.Claims = append(view.Claims, Claim{
			Volume: exports.Volume{Name: state.Name, Claim: state.Name, Content: exports.Files}, Claim: state,
		})
	}
	return nil
}

// lookAtClaim finds a claim, of a VM unless spec is nil.
func (r *Reconciler) lookAtClaim(
	ctx context.Context, view *View, name string, spec *v1.VirtualMachineInstanceSpec,
) error {
	claim := Claim{Volume: exports.Volume{Name: name, Claim: name}}
	var err error
	claim.Claim, err = frame.Found(ctx, r.Live, view.Export.Namespace, name, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim.Claim == nil {
		view.Claims = append(view.Claims, claim)
		return nil
	}
	dv, err := r.CDI.Get(ctx, view.Export.Namespace, name)
	if err != nil {
		return err
	}
	filled := claims.Owned(claim.Claim)
	if claims.StateOfClaim(claim.Claim, dv) != claims.Populated {
		claim.Unready = fmt.Sprintf("DataVolume %s does not have its disk yet", name)
	} else {
		claim.Unready = uploads.Unusable(name, claim.Claim.Annotations)
	}
	disk := spec != nil && isDisk(spec, name)
	if spec == nil {
		if disk, err = r.isDiskOfAny(ctx, view.Export.Namespace, name); err != nil {
			return err
		}
	}
	claim.Content = contentOf(claim.Claim.Spec.VolumeMode, claim.Claim.Annotations, filled, disk)
	view.Claims = append(view.Claims, claim)
	return nil
}

// isDiskOfAny reports whether any VM of a namespace has a claim as a disk.
func (r *Reconciler) isDiskOfAny(ctx context.Context, namespace, claim string) (bool, error) {
	var vms v1.VirtualMachineList
	if err := r.Client.List(ctx, &vms, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list VMs: %w", err)
	}
	return slices.ContainsFunc(vms.Items, func(vm v1.VirtualMachine) bool {
		return vm.Spec.Template != nil && isDisk(&vm.Spec.Template.Spec, claim)
	}), nil
}

// lookForUsers finds the pods of others that use the claims. The cache does not have them.
func (r *Reconciler) lookForUsers(ctx context.Context, view *View) error {
	if len(view.Claims) == 0 {
		return nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(view.Export.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range view.Claims {
		claim := &view.Claims[i]
		for j := range pods.Items {
			pod := &pods.Items[j]
			if !metav1.IsControlledBy(pod, view.Export) && uses(pod, claim.Volume.Claim) {
				claim.User = pod.Name
				break
			}
		}
	}
	return nil
}

// uses reports whether a pod uses a claim. Exports of the same claim do not disturb each other.
func uses(pod *corev1.Pod, claim string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return (owner == nil || owner.Kind != exports.Kind) && claims.UsedBy(pod, claim)
}

// lookAtSnapshot finds a snapshot, its content, and the claims that the export has made from it.
func (r *Reconciler) lookAtSnapshot(ctx context.Context, view *View) error {
	namespace := view.Export.Namespace
	snapshot, err := frame.Found(ctx, r.Client, namespace, view.Export.Spec.Source.Name,
		&snapshotv1beta1.VirtualMachineSnapshot{})
	if snapshot == nil {
		return err
	}
	view.Snapshot = snapshot
	if snapshot.Status == nil || snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return nil
	}
	view.Content, err = frame.Found(ctx, r.Client, namespace, *snapshot.Status.VirtualMachineSnapshotContentName,
		&snapshotv1beta1.VirtualMachineSnapshotContent{})
	if view.Content == nil || view.Content.Spec.Source.VirtualMachine == nil {
		return err
	}
	of := view.Content.Spec.Source.VirtualMachine
	if of.Spec.Template == nil {
		return nil
	}
	view.VM = &v1.VirtualMachine{ObjectMeta: *of.ObjectMeta.DeepCopy(), Spec: *of.Spec.DeepCopy(), Status: of.Status}
	view.VM.Namespace = namespace
	for i := range view.Content.Spec.VolumeBackups {
		backup := &view.Content.Spec.VolumeBackups[i]
		if backup.VolumeSnapshotName == nil {
			continue
		}
		if err := r.lookAtBackup(ctx, view, backup); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) lookAtBackup(ctx context.Context, view *View, backup *snapshotv1beta1.VolumeBackup) error {
	namespace, source := view.Export.Namespace, backup.PersistentVolumeClaim.Name
	claim := Claim{
		Volume: exports.Volume{Name: source, Claim: restoredName(view.Export.Name, source)}, Backup: backup,
	}
	var err error
	claim.Claim, err = frame.Found(ctx, r.Live, namespace, claim.Volume.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	volumeSnapshot, err := r.Snapshots.Get(ctx, namespace, *backup.VolumeSnapshotName)
	if err != nil {
		return err
	}
	if volumeSnapshot != nil && volumeSnapshot.Status != nil {
		ready := volumeSnapshot.Status.ReadyToUse
		claim.Restorable, claim.RestoreSize = ready != nil && *ready, volumeSnapshot.Status.RestoreSize
	}
	claim.Content = contentOf(claimOr(claim.Claim, backup), backup.PersistentVolumeClaim.Annotations, false,
		isDisk(&view.VM.Spec.Template.Spec, source))
	view.Claims = append(view.Claims, claim)
	return nil
}

// expand writes the VM's instance type and preference into its template: another cluster has others. What they are
// cannot always be found any more; the VM keeps its references then.
func (r *Reconciler) expand(ctx context.Context, view *View) error {
	if view.VM.Spec.Instancetype == nil && view.VM.Spec.Preference == nil {
		return nil
	}
	resolved, err := instancetype.Resolve(ctx, frame.Reader{Reader: r.Live}, view.VM)
	var missing *instancetype.NotFoundError
	switch {
	case errors.As(err, &missing):
		return nil
	case err != nil:
		return fmt.Errorf("read what the VM refers to: %w", err)
	}
	template, errs := instancetype.Expand(view.VM, resolved)
	if len(errs) > 0 {
		return nil
	}
	view.VM.Spec.Template, view.VM.Spec.Instancetype, view.VM.Spec.Preference = template, nil, nil
	return nil
}
