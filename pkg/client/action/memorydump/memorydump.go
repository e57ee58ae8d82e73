// Package memorydump has the memory of a running virtual machine written to a claim, through the subresources
// memorydump and removememorydump.
package memorydump

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// API has the methods of a client that the package calls.
type API interface {
	Put(ctx context.Context, resource, namespace, name, subresource string, body any) error
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	CreateObject(ctx context.Context, group, namespace, resource string, object *unstructured.Unstructured,
		dryRun bool) (*unstructured.Unstructured, error)
}

// Claim is one that is made for the dump.
type Claim struct {
	// StorageClass and AccessMode are the cluster's default class and ReadWriteOnce when they are empty.
	StorageClass, AccessMode string
}

const claimResource = "persistentvolumeclaims"

// Get asks for a dump to a claim; an empty name is that of the last dump. With create the claim is made, large enough.
// It returns when the request is accepted, not when it is done.
func Get(ctx context.Context, api API, namespace, name, claim string, create *Claim) error {
	if create != nil {
		if err := makeClaim(ctx, api, namespace, name, claim, *create); err != nil {
			return fmt.Errorf("make claim %s for a memory dump of %s/%s: %w", claim, namespace, name, err)
		}
	}
	body := &v1.VirtualMachineMemoryDumpRequest{ClaimName: claim}
	err := api.Put(ctx, client.VMs, namespace, name, "memorydump", body)
	switch {
	case err != nil && create != nil:
		return fmt.Errorf("dump the memory of %s/%s: %w (claim %s was made for it and stays; "+
			"`kubectl delete pvc %s -n %s` removes it)", namespace, name, err, claim, claim, namespace)
	case err != nil:
		return fmt.Errorf("dump the memory of %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Remove lets go of the claim of the last dump, so that the next one may go to another. What is on it stays.
func Remove(ctx context.Context, api API, namespace, name string) error {
	if err := api.Put(ctx, client.VMs, namespace, name, "removememorydump", nil); err != nil {
		return fmt.Errorf("remove the memory dump of %s/%s: %w", namespace, name, err)
	}
	return nil
}

func makeClaim(ctx context.Context, api API, namespace, name, claim string, options Claim) error {
	vmi, err := api.VMI(ctx, namespace, name)
	if err != nil {
		return err
	}
	if vmi.Status.Phase != v1.Running {
		return fmt.Errorf("VM is not running, its guest is %s; start it first (no claim was made)", vmi.Status.Phase)
	}
	mode := options.AccessMode
	if mode == "" {
		mode = "ReadWriteOnce"
	}
	size := sizing.FileClaim(sizing.Written(vmi) + sizing.DumpRoom)
	spec := map[string]any{
		"accessModes": []any{mode},
		"volumeMode":  "Filesystem",
		"resources":   map[string]any{"requests": map[string]any{"storage": size.String()}},
	}
	if options.StorageClass != "" {
		spec["storageClassName"] = options.StorageClass
	}
	_, err = api.CreateObject(ctx, "/api/v1", namespace, claimResource,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": map[string]any{"name": claim, "namespace": namespace},
			"spec":     spec,
		}}, false)
	return err
}

// Done holds when the dump that was asked for is there; it fails when there will be none. For one that was removed it
// holds when the claim was let go.
func Done(removed bool) wait.Condition {
	return wait.Condition{Name: "to have its memory dumped", Met: func(s wait.State) (bool, error) {
		if s.VM == nil {
			return false, nil
		}
		request := s.VM.Status.MemoryDumpRequest
		if removed {
			return request == nil, nil
		}
		if request != nil && request.Phase == v1.MemoryDumpFailed {
			return false, fmt.Errorf("the memory dump of %s/%s failed: %s", s.VM.Namespace, s.VM.Name, request.Message)
		}
		return request != nil && request.Phase == v1.MemoryDumpCompleted, nil
	}}
}

// Reached describes the state of a VM for which Done holds.
func Reached(vm *v1.VirtualMachine, removed bool) string {
	request := vm.Status.MemoryDumpRequest
	switch {
	case request == nil && removed:
		return fmt.Sprintf("VM %s has no claim for memory dumps any more; the dumps on it stay", vm.Name)
	case request == nil:
		return fmt.Sprintf("VM %s had its memory dumped, and let go of the claim since", vm.Name)
	case request.FileName == nil:
		return fmt.Sprintf("claim %s has the memory of VM %s", request.ClaimName, vm.Name)
	}
	return fmt.Sprintf("claim %s has the memory of VM %s, in the file %s", request.ClaimName, vm.Name,
		*request.FileName)
}
