package restorecontroller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
)

// dataVolume returns the DataVolume of a claim that is filled already.
func (v *View) dataVolume(
	name string, template *v1.DataVolumeTemplateSpec, claim *corev1.PersistentVolumeClaim,
) *cdiv1.DataVolume {
	named := template.DeepCopy()
	named.Name = name
	vm := v.VM
	if vm == nil {
		vm = &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: v.Restore.Namespace},
			Spec:       v.Content.Spec.Source.VirtualMachine.Spec,
		}
	}
	dv := cdi.New(vm, named)
	if v.VM == nil || !owns(v.Restore) {
		dv.OwnerReferences = nil
		delete(dv.Labels, v1.CreatedByLabel)
	}
	dv.Annotations[NameAnnotation] = v.Restore.Name
	dv.Annotations[cdiv1.AnnPrePopulated] = "true"
	withoutForeignSource(dv, claim)
	return dv
}

// withoutForeignSource makes the DataVolume a blank one, of the claim's size, when its source is or may be in another
// namespace. CDI needs no source for a filled claim. But CDI gives virt-controller's DataVolume a token for its source,
// and with that token a user without the right to the source gets a clone of it, once the annotation and the claim are
// gone.
func withoutForeignSource(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) {
	if dv.Spec.SourceRef == nil && !inAnotherNamespace(dv.Spec.Source, dv.Namespace) {
		return
	}
	dv.Spec.SourceRef, dv.Spec.Source = nil, &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	var requests *corev1.ResourceList
	switch {
	case dv.Spec.PVC != nil:
		requests = &dv.Spec.PVC.Resources.Requests
	case dv.Spec.Storage != nil:
		requests = &dv.Spec.Storage.Resources.Requests
	default:
		return
	}
	if _, ok := (*requests)[corev1.ResourceStorage]; ok {
		return
	}
	if *requests == nil {
		*requests = corev1.ResourceList{}
	}
	(*requests)[corev1.ResourceStorage] = claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// inAnotherNamespace reports whether a source is in another namespace than namespace.
func inAnotherNamespace(source *cdiv1.DataVolumeSource, namespace string) bool {
	switch {
	case source == nil:
		return false
	case source.PVC != nil:
		return source.PVC.Namespace != "" && source.PVC.Namespace != namespace
	case source.Snapshot != nil:
		return source.Snapshot.Namespace != "" && source.Snapshot.Namespace != namespace
	}
	return false
}
