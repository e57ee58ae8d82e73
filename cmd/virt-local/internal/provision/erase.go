package provision

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Record says why a volume's data is to be erased.
type Record struct {
	Volume    string      `json:"volume"`
	VolumeUID types.UID   `json:"volumeUID"`
	Namespace string      `json:"claimNamespace"`
	Claim     string      `json:"claim"`
	ClaimUID  types.UID   `json:"claimUID"`
	Time      metav1.Time `json:"time"`
}

// volume deletes a volume whose claim was deleted, with its data. The data is set aside, erased, and then the volume
// deleted: whenever this is interrupted, the volume is there still and says again what is to be done. Should it then
// say otherwise, since etcd was restored, the data goes back to its place.
func (p *provisioner) volume(ctx context.Context, k key) error {
	cached, err := p.vols.Get(k.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if cached.Annotations[annotationProvisionedBy] != Name {
		return nil
	}
	aside, err := p.store.IsAside(cached.Name)
	if err != nil {
		return err
	}
	if !aside && !reclaimable(cached) {
		return nil
	}
	// What is erased is gone: ask the API server and not a cache.
	v, err := p.client.CoreV1().PersistentVolumes().Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get volume: %w", err)
	}
	deleted := false
	if v.UID == cached.UID && reclaimable(v) {
		if deleted, err = p.claimDeleted(ctx, v.Spec.ClaimRef); err != nil {
			return err
		}
	}
	if !deleted {
		return p.store.PutBack(v.Name)
	}
	record := Record{
		Volume: v.Name, VolumeUID: v.UID, Time: metav1.Now(),
		Namespace: v.Spec.ClaimRef.Namespace, Claim: v.Spec.ClaimRef.Name, ClaimUID: v.Spec.ClaimRef.UID,
	}
	if err := p.store.SetAside(v.Name, record); err != nil {
		return err
	}
	if err := p.store.Erase(v.Name); err != nil {
		return err
	}
	err = p.client.CoreV1().PersistentVolumes().
		Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume: %w", err)
	}
	return nil
}

// reclaimable reports whether a volume's data is to be erased when its claim was deleted.
func reclaimable(v *corev1.PersistentVolume) bool {
	return v.Annotations[annotationProvisionedBy] == Name && v.Status.Phase == corev1.VolumeReleased &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// claimDeleted asks the API server whether a volume's claim was deleted.
func (p *provisioner) claimDeleted(ctx context.Context, ref *corev1.ObjectReference) (bool, error) {
	if ref == nil || ref.UID == "" {
		return false, nil
	}
	claim, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get claim of volume: %w", err)
	}
	return claim.UID != ref.UID, nil
}

// reportUnowned logs what data has no volume. It is kept.
func (p *provisioner) reportUnowned(ctx context.Context) error {
	names, err := Unowned(ctx, p.client, p.store)
	for _, name := range names {
		klog.FromContext(ctx).
			Info("Data without a PersistentVolume is kept; virt-local status lists it", "volume", name)
	}
	return err
}
