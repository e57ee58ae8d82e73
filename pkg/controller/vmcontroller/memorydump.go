package vmcontroller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// A memory dump is asked for by virt-api in the VM's status. virt-controller gives the VMI a volume for it, which
// is plugged in as others are, only not into the guest; virt-handler has the launcher write the guest's memory there
// and says in the VMI's status how far that is; then virt-controller takes the volume away again. The VM's spec
// stays as it is.

// dumpRequest returns the next state of the VM's request for a memory dump, given its VMI; nil once it is taken back.
func dumpRequest(view View) *v1.VirtualMachineMemoryDumpRequest {
	if view.VM.Status.MemoryDumpRequest == nil {
		return nil
	}
	request := view.VM.Status.MemoryDumpRequest.DeepCopy()
	instance := view.VMI
	var status *v1.VolumeStatus
	asked := false
	if instance != nil {
		asked = slices.ContainsFunc(instance.Spec.Volumes, isDump(request.ClaimName))
		if i := slices.IndexFunc(instance.Status.VolumeStatus,
			func(s v1.VolumeStatus) bool { return s.Name == request.ClaimName }); i >= 0 {
			status = &instance.Status.VolumeStatus[i]
		}
	}
	if request.Remove {
		request.Phase = v1.MemoryDumpDissociating
	}
	switch request.Phase {
	case v1.MemoryDumpDissociating:
		if !asked && status == nil {
			return nil
		}
	case v1.MemoryDumpAssociating, v1.MemoryDumpInProgress:
		if !life.Running(instance) {
			now := metav1.NewTime(view.Now)
			request.Phase, request.EndTimestamp, request.Message = v1.MemoryDumpFailed, &now,
				"the virtual machine does not run any more"
			return request
		}
		if asked {
			request.Phase = v1.MemoryDumpInProgress
		}
		if status != nil && status.MemoryDumpVolume != nil {
			dumpResult(request, status)
		}
	case v1.MemoryDumpUnmounting:
		if !asked && status == nil {
			request.Phase = v1.MemoryDumpCompleted
		}
	}
	return request
}

// dumpResult brings what virt-handler says of the dump into the request.
func dumpResult(request *v1.VirtualMachineMemoryDumpRequest, status *v1.VolumeStatus) {
	info := status.MemoryDumpVolume
	request.StartTimestamp = info.StartTimestamp
	switch status.Phase {
	case v1.MemoryDumpVolumeCompleted:
		request.Phase, request.EndTimestamp, request.FileName = v1.MemoryDumpUnmounting, info.EndTimestamp,
			&info.TargetFileName
	case v1.MemoryDumpVolumeFailed:
		request.Phase, request.EndTimestamp, request.Message = v1.MemoryDumpFailed, info.EndTimestamp, status.Message
	}
}

// isDump reports whether a volume holds a memory dump to a claim; it has the claim's name, as KubeVirt's does.
func isDump(claim string) func(v1.Volume) bool {
	return func(v v1.Volume) bool { return v.Name == claim && v.MemoryDump != nil }
}

// dumpVolumes returns the VMI's volumes as its VM's request wants them; changed is false when they are so.
func dumpVolumes(
	request *v1.VirtualMachineMemoryDumpRequest, instance *v1.VirtualMachineInstance,
) (volumes []v1.Volume, changed bool) {
	if request == nil || instance == nil || instance.DeletionTimestamp != nil {
		return nil, false
	}
	there := slices.ContainsFunc(instance.Spec.Volumes, isDump(request.ClaimName))
	wanted := !request.Remove && (request.Phase == v1.MemoryDumpAssociating || request.Phase == v1.MemoryDumpInProgress)
	switch {
	case wanted && !there && life.Running(instance):
		return append(slices.Clone(instance.Spec.Volumes),
			v1.Volume{Name: request.ClaimName, VolumeSource: v1.VolumeSource{
				MemoryDump: &v1.MemoryDumpVolumeSource{
					PersistentVolumeClaimVolumeSource: v1.PersistentVolumeClaimVolumeSource{
						PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{
							ClaimName: request.ClaimName,
						},
						Hotpluggable: true,
					},
				},
			}}), true
	case !wanted && there:
		return slices.DeleteFunc(slices.Clone(instance.Spec.Volumes), isDump(request.ClaimName)), true
	}
	return nil, false
}

// dumpMemory gives the VM's VMI the volume of a memory dump, or takes it away.
func (view *View) dumpMemory() {
	volumes, changed := dumpVolumes(dumpRequest(*view), view.VMI)
	if !changed {
		return
	}
	view.VMI = view.VMI.DeepCopy()
	view.VMI.Spec.Volumes = volumes
}
