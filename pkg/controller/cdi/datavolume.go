// Package cdi is what virt-controller has to do with CDI, the Containerized Data Importer, which fills
// PersistentVolumeClaims and may or may not be in the cluster. Its API is the kind DataVolume.
//
//	VirtualMachine dataVolumeTemplates ──New, Authorize──► DataVolume ──CDI──► PersistentVolumeClaim of its name
//
// New (this file) is the DataVolume of a template; how far one is says package claim. Access (access.go) reads the
// API where the cluster has it. Authorize (authorize.go) asks whether a
// VM may clone what its template names. Reconcilers vm and vmi use all of it.
package cdi

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// allowClaimAdoption lets CDI take a claim of the DataVolume's name that is there already for its own, as after a
// restore; KubeVirt sets it on all DataVolumes of VMs.
const allowClaimAdoption = "cdi.kubevirt.io/allowClaimAdoption"

// New returns the DataVolume of a VM's template, as it is to be created.
func New(vm *v1.VirtualMachine, template *v1.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        template.Name,
			Namespace:   vm.Namespace,
			Labels:      map[string]string{},
			Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind),
			},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	maps.Copy(dv.Labels, template.Labels)
	dv.Labels[v1.CreatedByLabel] = string(vm.UID)
	maps.Copy(dv.Annotations, template.Annotations)
	dv.Annotations[allowClaimAdoption] = "true"
	if dv.Spec.PriorityClassName == "" && vm.Spec.Template != nil {
		dv.Spec.PriorityClassName = vm.Spec.Template.Spec.PriorityClassName
	}
	return dv
}
