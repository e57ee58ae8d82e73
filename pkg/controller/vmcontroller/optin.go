package vmcontroller

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// storageClassChanged lets through what of a StorageClass can change and decides about VMs: its opt-in.
var storageClassChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*storagev1.StorageClass), e.ObjectNew.(*storagev1.StorageClass)
		return volumemigration.ClassOptsIn(before) != volumemigration.ClassOptsIn(after)
	},
}

// lookAtOptIn finds out which of the claims that keep a guest on its node are of StorageClasses that opt in.
func (r *Reconciler) lookAtOptIn(ctx context.Context, view *View) error {
	if view.VMI == nil {
		return nil
	}
	if _, given := volumemigration.OwnOptIn(view.VM); given {
		return nil
	}
	view.OptIn = map[string]bool{}
	for _, name := range volumemigration.Keeping(view.VMI) {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: view.VM.Namespace, Name: name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim %s: %w", name, err)
		}
		if err != nil || className(claim) == "" {
			continue
		}
		class := &storagev1.StorageClass{}
		err = r.Client.Get(ctx, types.NamespacedName{Name: className(claim)}, class)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get StorageClass %s: %w", className(claim), err)
		}
		view.OptIn[name] = err == nil && volumemigration.ClassOptsIn(class)
	}
	return nil
}

// followOptIn has a VMI say whether its guest is moved with its disks when it is evicted, for those who see the VMI
// only. It changes nothing of a guest that runs.
func (view *View) followOptIn() {
	if view.VM.DeletionTimestamp != nil || !life.Staying(view.VMI) {
		return
	}
	want, given := volumemigration.OptIn(view.VM, view.VMI, view.OptIn)
	is, has := view.VMI.Annotations[volumemigration.OptInAnnotation]
	if want == is && given == has {
		return
	}
	after := view.VMI.DeepCopy()
	after.Annotations = maps.Clone(after.Annotations)
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	if given {
		after.Annotations[volumemigration.OptInAnnotation] = want
	} else {
		delete(after.Annotations, volumemigration.OptInAnnotation)
	}
	view.VMI = after
}
