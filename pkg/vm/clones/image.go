package clones

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// KindClaim is the kind of the source and of the target of a clone that copies an image of another namespace to a
// claim.
const KindClaim = "PersistentVolumeClaim"

// SizeAnnotation on such a clone is the size of the copy, a quantity; without it the copy is as large as the image. It
// is given at creation and never changes.
const SizeAnnotation = "virtkit.io/size"

// OfImage reports a clone that copies an image.
func OfImage(c *clonev1beta1.VirtualMachineClone) bool {
	return c.Spec.Source != nil && c.Spec.Source.Kind == KindClaim
}

// OriginName returns the name of the VolumeSnapshot that a clone takes of an image, in the namespace of the image.
func OriginName(c metav1.Object) string { return "clone-image-" + string(c.GetUID()) }

// ImageTrouble returns why nobody may copy a claim to another namespace, or "" when it has an image. Other claims are
// the business of their namespace alone.
func ImageTrouble(claim *corev1.PersistentVolumeClaim) string {
	name := claim.Namespace + "/" + claim.Name
	if claim.DeletionTimestamp != nil {
		return fmt.Sprintf("claim %s is being deleted", name)
	}
	if claim.Labels[uploads.LabelImage] == "" || claim.Labels[uploads.LabelImageVersion] == "" {
		return fmt.Sprintf("claim %s has no image: only claims with the labels %s and %s, as `virtctl image pull` and "+
			"`virtctl image import` make them, can be copied to another namespace", name, uploads.LabelImage,
			uploads.LabelImageVersion)
	}
	if trouble := uploads.Unusable(claim.Name, claim.Annotations); trouble != "" {
		return fmt.Sprintf("claim %s cannot be copied: %s", name, trouble)
	}
	return ""
}

// FilledBy reports whether a claim is to be filled by the VolumeSnapshot of a clone of an image, which is named by the
// clone's UID: no field of a claim says it that could change.
func FilledBy(c *clonev1beta1.VirtualMachineClone, claim *corev1.PersistentVolumeClaim) bool {
	from := claim.Spec.DataSource
	return c.UID != "" && from != nil && from.Kind == kindVolumeSnapshot && from.APIGroup != nil &&
		*from.APIGroup == snapshotGroup && from.Name == VolumeName(c, 0)
}

const (
	snapshotGroup      = "snapshot.storage.k8s.io"
	kindVolumeSnapshot = "VolumeSnapshot"
)

// ofNamespace reports a label of a claim with an image that names an instance type or preference of its namespace, or
// says that the name is one.
func ofNamespace(image *corev1.PersistentVolumeClaim, label string) bool {
	for _, of := range [][2]string{
		{uploads.LabelInstancetype, uploads.LabelInstancetypeKind},
		{uploads.LabelPreference, uploads.LabelPreferenceKind},
	} {
		if (label == of[0] || label == of[1]) && uploads.OfNamespace(image.Labels[of[1]]) {
			return true
		}
	}
	return false
}

// ImageClaim returns the claim to which a clone copies an image, whose disk is that of the clone's VolumeSnapshot. It
// has the image's labels of defaults, and is no image itself. least is what the VolumeSnapshots say that a copy needs
// (status.restoreSize), of which those that are not known are nil.
func ImageClaim(
	c *clonev1beta1.VirtualMachineClone, image *corev1.PersistentVolumeClaim, least ...*resource.Quantity,
) (*corev1.PersistentVolumeClaim, error) {
	size := image.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = image.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if text := c.Annotations[SizeAnnotation]; text != "" {
		asked, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no size; write one such as 10Gi", text)
		}
		if asked.Cmp(size) < 0 {
			return nil, fmt.Errorf("the image has %s, and its copy cannot have less", size.String())
		}
		size = asked
	}
	for _, q := range least {
		if q != nil && q.Cmp(size) > 0 {
			size = *q
		}
	}
	labels := maps.Clone(image.Labels)
	maps.DeleteFunc(labels, func(label, _ string) bool {
		return !uploads.IsDefault(label) || ofNamespace(image, label)
	})
	if labels == nil {
		labels = map[string]string{}
	}
	labels[UIDLabel] = string(c.UID)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Spec.Target.Name, Labels: labels,
			Annotations: map[string]string{CopiedAnnotation: image.Namespace + "/" + image.Name},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: image.Spec.AccessModes, StorageClassName: image.Spec.StorageClassName,
			VolumeMode: image.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
			DataSource: &corev1.TypedLocalObjectReference{
				APIGroup: new(snapshotGroup), Kind: kindVolumeSnapshot, Name: VolumeName(c, 0),
			},
		},
	}, nil
}
