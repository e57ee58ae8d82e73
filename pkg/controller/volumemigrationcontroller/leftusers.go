package volumemigrationcontroller

import (
	"cmp"
	"context"
	"fmt"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// users are all that may use a claim of a namespace: that mount it, have it as a volume, export it, or are made from
// it.
type users struct {
	pods      corev1.PodList
	vms       v1.VirtualMachineList
	vmis      v1.VirtualMachineInstanceList
	exports   exportv1beta1.VirtualMachineExportList
	claims    corev1.PersistentVolumeClaimList
	snapshots snapshotsv1.VolumeSnapshotList
	// clones are the claims of the namespace from which CDI is yet to fill a DataVolume, with its name.
	clones map[string]string
}

// users lists them. It waits with ErrStale until it is known which kinds the cluster has.
func (r *Reconciler) users(ctx context.Context, namespace string) (*users, error) {
	for _, kind := range []Kind{r.CDI, r.VolumeSnapshots} {
		switch settled, err := kind.Settled(ctx); {
		case err != nil:
			return nil, err
		case !settled:
			return nil, frame.ErrStale
		}
	}
	all := &users{}
	for what, list := range map[string]client.ObjectList{
		"pods": &all.pods, "VMs": &all.vms, "VMIs": &all.vmis, "exports": &all.exports, "claims": &all.claims,
	} {
		if err := r.Live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
	if err := r.VolumeSnapshots.List(ctx, &all.snapshots, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var err error
	all.clones, err = r.clones(ctx, namespace)
	return all, err
}

// clones returns the claims of a namespace from which CDI is yet to fill DataVolumes of any namespace. CDI waits with
// that while a guest has the claim.
func (r *Reconciler) clones(ctx context.Context, namespace string) (map[string]string, error) {
	var list cdiv1.DataVolumeList
	if err := r.CDI.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		dv := &list.Items[i]
		if dv.DeletionTimestamp != nil || dv.Status.Phase == cdiv1.Succeeded {
			continue
		}
		from, of, err := r.source(ctx, dv)
		if err != nil {
			return nil, err
		}
		if from != nil && cmp.Or(from.Namespace, of) == namespace {
			out[from.Name] = dv.Namespace + "/" + dv.Name
		}
	}
	return out, nil
}

// source returns the claim from which a DataVolume is filled, nil for none; a claim that says no namespace is in of.
func (r *Reconciler) source(
	ctx context.Context, dv *cdiv1.DataVolume,
) (from *cdiv1.DataVolumeSourcePVC, of string, err error) {
	if dv.Spec.Source != nil {
		return dv.Spec.Source.PVC, dv.Namespace, nil
	}
	ref := dv.Spec.SourceRef
	if ref == nil || ref.Kind != cdiv1.DataVolumeDataSource {
		return nil, "", nil
	}
	key := types.NamespacedName{Namespace: dv.Namespace, Name: ref.Name}
	if ref.Namespace != nil && *ref.Namespace != "" {
		key.Namespace = *ref.Namespace
	}
	var source cdiv1.DataSource
	if err := r.Live.Get(ctx, key, &source); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, "", nil
		}
		return nil, "", fmt.Errorf("get DataSource %s: %w", key, err)
	}
	if source.Spec.Source.DataSource != nil { // which CDI has followed
		return source.Status.Source.PVC, key.Namespace, nil
	}
	return source.Spec.Source.PVC, key.Namespace, nil
}

// pod returns the pod that uses a claim, "" when none does, and whether it is the guest's own.
func (u *users) pod(claim string, vmi *v1.VirtualMachineInstance) (name string, ours bool) {
	for i := range u.pods.Items {
		pod := &u.pods.Items[i]
		if !claims.UsedBy(pod, claim) {
			continue
		}
		if name, ours = pod.Name, metav1.IsControlledBy(pod, vmi); !ours {
			return name, false
		}
	}
	return name, ours
}

// of says who but a VMI, its VM and pods uses a claim; "" when nobody does.
func (u *users) of(claim string, vmi *v1.VirtualMachineInstance) string {
	for i := range u.vms.Items {
		if vm := &u.vms.Items[i]; vm.Name != vmi.Name && named(vm, claim) {
			return "VirtualMachine " + vm.Name + " names it"
		}
	}
	for i := range u.vmis.Items {
		if other := &u.vmis.Items[i]; other.UID != vmi.UID && uses(other, claim) {
			return "VirtualMachineInstance " + other.Name + " uses it"
		}
	}
	for i := range u.exports.Items {
		if e := &u.exports.Items[i]; e.Spec.Source.Kind == kindClaim && e.Spec.Source.Name == claim {
			return "VirtualMachineExport " + e.Name + " exports it"
		}
	}
	for i := range u.claims.Items {
		if c := &u.claims.Items[i]; c.Status.Phase != corev1.ClaimBound && copies(c, claim) {
			return "PersistentVolumeClaim " + c.Name + " is made from it"
		}
	}
	for i := range u.snapshots.Items {
		s := &u.snapshots.Items[i]
		from := s.Spec.Source.PersistentVolumeClaimName
		ready := s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
		if from != nil && *from == claim && !ready && s.DeletionTimestamp == nil {
			return "VolumeSnapshot " + s.Name + " is made from it"
		}
	}
	if dv := u.clones[claim]; dv != "" {
		return "DataVolume " + dv + " is made from it"
	}
	return ""
}

const kindClaim = "PersistentVolumeClaim"

// copies reports a claim that the storage fills from another of its namespace.
func copies(c *corev1.PersistentVolumeClaim, from string) bool {
	if s := c.Spec.DataSource; s != nil && s.Kind == kindClaim && s.Name == from {
		return true
	}
	s := c.Spec.DataSourceRef
	return s != nil && s.Kind == kindClaim && s.Name == from && (s.Namespace == nil || *s.Namespace == c.Namespace)
}
