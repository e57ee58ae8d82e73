package virtapi

import (
	"context"
	"fmt"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// memoryDump asks for a dump of a VM's memory to a claim; virt-controller sees to it.
func (q *requests) memoryDump(r *restful.Request, namespace, name string) error {
	request := &v1.VirtualMachineMemoryDumpRequest{}
	if err := decode(r.Request, request); err != nil {
		return err
	}
	ctx := r.Request.Context()
	return retried(func() error {
		vm, vmi, err := q.machines.machine(ctx, namespace, name)
		if err != nil {
			return err
		}
		claimName, err := mayDump(vm, vmi, request.ClaimName)
		if err != nil {
			return err
		}
		if err := q.machines.checkDumpClaim(ctx, vm, vmi, claimName); err != nil {
			return err
		}
		return q.machines.patchDump(ctx, vm,
			&v1.VirtualMachineMemoryDumpRequest{ClaimName: claimName, Phase: v1.MemoryDumpAssociating})
	})
}

// mayDump returns the claim for a dump, the last dump's when none is named, or why there can be no dump.
func mayDump(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, claimName string) (string, error) {
	last := vm.Status.MemoryDumpRequest
	if claimName == "" && last != nil {
		claimName = last.ClaimName
	}
	switch {
	case claimName == "":
		return "", badRequest("Memory dump requires claim name on first use")
	case !life.Running(vmi):
		return "", conflict(vm, "VM is not running")
	case last != nil && last.Remove:
		return "", conflict(vm, fmt.Sprintf("memory dump to claim [%s] is being removed", last.ClaimName))
	case last != nil && last.Phase != v1.MemoryDumpCompleted && last.Phase != v1.MemoryDumpFailed:
		return "", conflict(vm, "memory dump request already in progress, or its volume is being taken away")
	case last != nil && last.ClaimName != claimName:
		return "",
			conflict(vm, fmt.Sprintf("unable to request memory dump to claim [%s], since the last was to [%s]; "+
				"remove that one first (`virtctl memory-dump remove %s -n %s`)", claimName, last.ClaimName, vm.Name,
				vm.Namespace))
	}
	for i := range vmi.Spec.Volumes {
		if volume := &vmi.Spec.Volumes[i]; volume.Name == claimName || claims.Name(volume) == claimName {
			return "",
				conflict(vm, fmt.Sprintf("claim [%s] is volume %q of the VM; use another one", claimName, volume.Name))
		}
	}
	return claimName, nil
}

// checkDumpClaim reports a claim that a dump does not fit on.
func (m *machines) checkDumpClaim(
	ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, name string,
) error {
	pvc, err := m.core.CoreV1().PersistentVolumeClaims(vm.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return dumpFits(vm, vmi, pvc)
}

func dumpFits(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, pvc *corev1.PersistentVolumeClaim) error {
	if claims.IsBlock(pvc.Spec.VolumeMode) {
		return conflict(vm, fmt.Sprintf("claim [%s] is a block device; a memory dump is a file, so use a claim of "+
			"volumeMode Filesystem", pvc.Name))
	}
	size, ok := pvc.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		size = pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if need := sizing.Written(vmi) + sizing.DumpRoom; size.Value() < need {
		return conflict(vm, fmt.Sprintf("claim [%s] has %s; a dump of the VM's memory takes %s; "+
			"use a larger claim", pvc.Name, size.String(), resource.NewQuantity(need, resource.BinarySI)))
	}
	return nil
}

// removeMemoryDump releases the claim of the last dump; what is on it stays.
func (q *requests) removeMemoryDump(r *restful.Request, namespace, name string) error {
	ctx := r.Request.Context()
	return retried(func() error {
		vm, err := q.machines.vm(ctx, namespace, name)
		if err != nil {
			return err
		}
		last := vm.Status.MemoryDumpRequest
		if last == nil {
			return conflict(vm, "there is no memory dump to remove")
		}
		if last.Remove {
			return conflict(vm, fmt.Sprintf("memory dump to claim [%s] is being removed already", last.ClaimName))
		}
		request := last.DeepCopy()
		request.Remove = true
		return q.machines.patchDump(ctx, vm, request)
	})
}

// patchDump writes a VM's request, all of it.
func (m *machines) patchDump(
	ctx context.Context, vm *v1.VirtualMachine, request *v1.VirtualMachineMemoryDumpRequest,
) error {
	fields := map[string]any{ // null takes away what was said of the last dump
		"claimName": request.ClaimName, "phase": request.Phase, "remove": nil, "message": nil,
		"startTimestamp": request.StartTimestamp, "endTimestamp": request.EndTimestamp, "fileName": request.FileName,
	}
	if request.Remove {
		fields["remove"] = true
	}
	err := m.patch(ctx, virtualMachines, vm, "status",
		map[string]any{"status": map[string]any{"memoryDumpRequest": fields}}, nil)
	if apierrors.IsConflict(err) {
		return &conflictingWriteError{err}
	}
	return err
}
