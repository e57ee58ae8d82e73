package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
)

const (
	virtualMachines         = "virtualmachines"
	virtualMachineInstances = "virtualmachineinstances"
	// killGrace is the grace period of a pod that is deleted at once, seconds: with zero the API server forgets it
	// while its processes may still hold the disks.
	killGrace = 1
)

// machines reads and changes VMs in the API. It keeps no copies, so what it reads is never old and thousands of VMs
// cost it nothing.
type machines struct {
	kubevirt *rest.RESTClient
	core     kubernetes.Interface
}

func newMachines(restConfig *rest.Config, core kubernetes.Interface) (*machines, error) {
	client, err := config.KubeVirtClient(restConfig)
	if err != nil {
		return nil, err
	}
	return &machines{kubevirt: client, core: core}, nil
}

func (m *machines) vm(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error) {
	vm := &v1.VirtualMachine{}
	return vm, m.kubevirt.Get().Namespace(namespace).Resource(virtualMachines).Name(name).Do(ctx).Into(vm)
}

func (m *machines) vmi(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	return vmi, m.kubevirt.Get().Namespace(namespace).Resource(virtualMachineInstances).Name(name).Do(ctx).Into(vmi)
}

// machine reads a VM and its VMI, nil when it has none.
func (m *machines) machine(
	ctx context.Context, namespace, name string,
) (*v1.VirtualMachine, *v1.VirtualMachineInstance, error) {
	vm, err := m.vm(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	vmi, err := m.vmi(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return vm, nil, nil
	case err != nil:
		return nil, nil, err
	case !metav1.IsControlledBy(vmi, vm):
		return vm, nil, nil // another's, that only has the name
	}
	return vm, vmi, nil
}

// apply makes a change. The VMI comes first, since the VM's change sets its end in motion. A
// conflict error means that the VM has changed since it was read.
func (m *machines) apply(
	ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, c change, dryRun []string,
) error {
	if c.grace != nil {
		patch := map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": *c.grace}}
		if err := m.patch(ctx, virtualMachineInstances, vmi, "", patch, dryRun); err != nil {
			return fmt.Errorf("shorten the grace period: %w", err)
		}
	}
	if c.strategy != "" {
		spec := runstrategy.Patch(&vm.Spec, c.strategy)
		if err := m.patch(ctx, virtualMachines, vm, "", map[string]any{"spec": spec}, dryRun); err != nil {
			return err
		}
	}
	if c.setRequests {
		patch := map[string]any{"status": map[string]any{"stateChangeRequests": c.requests}}
		if err := m.patch(ctx, virtualMachines, vm, "status", patch, dryRun); err != nil {
			return err
		}
	}
	if c.killPods && len(dryRun) == 0 {
		return m.killPods(ctx, vmi)
	}
	return nil
}

// patch merges into an object, unless it has changed since it was read.
func (m *machines) patch(
	ctx context.Context, resource string, object metav1.Object, subresource string, patch map[string]any,
	dryRun []string,
) error {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = object.GetResourceVersion()
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	request := m.kubevirt.Patch(types.MergePatchType).Namespace(object.GetNamespace()).Resource(resource).
		Name(object.GetName()).Body(body).Param("fieldManager", "virt-api")
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	for _, run := range dryRun {
		request = request.Param("dryRun", run)
	}
	return request.Do(ctx).Error()
}

// podsOf returns the launchers of a VMI: one, or two while it moves.
func (m *machines) podsOf(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]corev1.Pod, error) {
	pods, err := m.core.CoreV1().Pods(vmi.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1.CreatedByLabel + "=" + string(vmi.UID),
	})
	if err != nil {
		return nil, fmt.Errorf("find the pod of VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !life.Recorded(vmi, &pod) }), nil
}

// killPods deletes the launchers of a VMI.
func (m *machines) killPods(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	grace := int64(killGrace)
	pods, err := m.podsOf(ctx, vmi)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		err := m.core.CoreV1().Pods(vmi.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s: %w", vmi.Namespace, pod.Name, err)
		}
	}
	return nil
}
