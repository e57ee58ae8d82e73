package client

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// ReplicaSets is the resource of VirtualMachineInstanceReplicaSet.
const ReplicaSets = "virtualmachineinstancereplicasets"

// ReplicaSet returns one VirtualMachineInstanceReplicaSet.
func (c *Client) ReplicaSet(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstanceReplicaSet, error) {
	set := &v1.VirtualMachineInstanceReplicaSet{}
	err := c.get(ctx, ReplicaSets, namespace, name, set)
	return set, err
}

// Expanded returns a VirtualMachine with its instance type and preference written out.
func (c *Client) Expanded(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error) {
	data, err := raw(c.subs.Get().Namespace(namespace).Resource(VMs).Name(name).SubResource("expand-spec").Do(ctx))
	return readVM(data, err)
}

// Expand does the same for a VirtualMachine, as JSON, that need not exist.
func (c *Client) Expand(ctx context.Context, namespace string, vm []byte) (*v1.VirtualMachine, error) {
	data, err := raw(c.subs.Put().Namespace(namespace).Resource("expand-vm-spec").
		SetHeader("Content-Type", "application/json").Body(vm).Do(ctx))
	return readVM(data, err)
}

func readVM(data []byte, err error) (*v1.VirtualMachine, error) {
	if err != nil {
		return nil, err
	}
	vm := &v1.VirtualMachine{}
	if err := json.Unmarshal(data, vm); err != nil {
		return nil, fmt.Errorf("read the VM that the server wrote out: %w", err)
	}
	setKind(vm)
	return vm, nil
}

// ObjectGraph returns the objects that a VM or VMI (VMs, VMIs) depends on.
func (c *Client) ObjectGraph(
	ctx context.Context, resource, namespace, name string, options v1.ObjectGraphOptions,
) (*v1.ObjectGraphNode, error) {
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encode the options: %w", err)
	}
	data, err := raw(c.subs.Get().Namespace(namespace).Resource(resource).Name(name).SubResource("objectgraph").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	node := &v1.ObjectGraphNode{}
	if err := json.Unmarshal(data, node); err != nil {
		return nil, fmt.Errorf("read the graph: %w", err)
	}
	node.SetGroupVersionKind(v1.GroupVersion.WithKind("ObjectGraphNode"))
	return node, nil
}
