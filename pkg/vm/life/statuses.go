package life

import v1 "kubevirt.io/api/core/v1"

// CannotStart returns the statuses of a VM that asks for a guest and does not get it by itself. A pool makes such a VM
// anew, with new disks, so Unknown is none of them: the guest of a node that is lost may run still.
func CannotStart() []v1.VirtualMachinePrintableStatus {
	return []v1.VirtualMachinePrintableStatus{
		v1.VirtualMachineStatusCrashLoopBackOff, v1.VirtualMachineStatusUnschedulable,
		v1.VirtualMachineStatusDataVolumeError, v1.VirtualMachineStatusPvcNotFound,
		v1.VirtualMachineStatusErrImagePull, v1.VirtualMachineStatusImagePullBackOff,
	}
}

// Broken returns the statuses of a VM that somebody has to look at; KubeVirt's metrics count the same as errors. Failed
// is not a status of a VM, but a phase of a VMI.
func Broken() []v1.VirtualMachinePrintableStatus {
	return append(CannotStart(), v1.VirtualMachineStatusUnknown)
}
