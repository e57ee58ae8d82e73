// Package cdi makes, reads and authorises DataVolumes, the API of CDI. CDI, the Containerized Data Importer, fills
// PersistentVolumeClaims; a cluster may have it or not.
//
//	VirtualMachine dataVolumeTemplates ──New, Authorize──► DataVolume ──CDI──► PersistentVolumeClaim of its name
//
// New (this file) returns the DataVolume of a template; package claims reports its progress. Access (access.go) reads
// the API where the cluster has it. Authorize (authorize.go) asks whether a VM may clone what its template names. The
// reconcilers of VMs, VMIs, snapshots, restores and pools use it.
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
