package instancetype

import (
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// PreferStorageClass gives the DataVolumes of a VM the storage class of its preference where they name none. It is done
// when the VM is admitted, since they are made from the VM's own templates.
func PreferStorageClass(preference *v1beta1.VirtualMachinePreferenceSpec, vm *v1.VirtualMachine) {
	if preference.Volumes == nil || preference.Volumes.PreferredStorageClassName == "" {
		return
	}
	class := &preference.Volumes.PreferredStorageClassName
	for i := range vm.Spec.DataVolumeTemplates {
		spec := &vm.Spec.DataVolumeTemplates[i].Spec
		if spec.PVC != nil {
			prefer(&spec.PVC.StorageClassName, class)
		}
		if spec.Storage != nil {
			prefer(&spec.Storage.StorageClassName, class)
		}
	}
}
