package evacuate

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// page is how many pods are read at once.
const page = 500

// API has the methods of a client that the package calls.
type API interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	KubeVirtList(ctx context.Context) (*v1.KubeVirtList, error)
	Cordon(ctx context.Context, node string, on bool) error
	Evict(ctx context.Context, namespace, pod string, dryRun bool) error
	CreateTyped(ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool) error
}

// Gather reads what a plan is made from. An action.ErrNotFound says that there is no such node.
func Gather(ctx context.Context, api API, node string) (Facts, error) {
	f := Facts{Node: node, VMs: map[string]*v1.VirtualMachine{}}
	var nodes corev1.NodeList
	if err := api.Read(ctx, "/api/v1/nodes", nil, &nodes); err != nil {
		return f, fmt.Errorf("list nodes: %w", err)
	}
	f.Nodes = nodes.Items
	if !slices.ContainsFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == node }) {
		return f, &noNodeError{node}
	}
	vmis, err := api.VMIList(ctx, "", on(node))
	if err != nil {
		return f, fmt.Errorf("list the VirtualMachineInstances of node %s: %w", node, err)
	}
	f.VMIs = vmis.Items
	vms, err := api.VMList(ctx, "", metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("list VirtualMachines: %w", err)
	}
	for i := range vms.Items {
		f.VMs[vms.Items[i].Namespace+"/"+vms.Items[i].Name] = &vms.Items[i]
	}
	kubevirts, err := api.KubeVirtList(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return f, fmt.Errorf("read the KubeVirt resource, which has the cluster's eviction strategy: %w", err)
	}
	for i := range kubevirts.Items {
		if strategy := kubevirts.Items[i].Spec.Configuration.EvictionStrategy; strategy != nil {
			f.Strategy = *strategy
		}
	}
	if err := f.gatherVolumes(ctx, api); err != nil {
		return f, err
	}
	query := url.Values{
		"limit":         {strconv.Itoa(page)},
		"fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"},
	}
	for {
		var pods corev1.PodList
		if err := api.Read(ctx, "/api/v1/pods", query, &pods); err != nil {
			return f, fmt.Errorf("list pods: %w", err)
		}
		f.Pods = append(f.Pods, pods.Items...)
		if pods.Continue == "" {
			return f, nil
		}
		query.Set("continue", pods.Continue)
	}
}

// gatherVolumes reads which volumes not every node can use, if the user may know.
func (f *Facts) gatherVolumes(ctx context.Context, api API) error {
	f.Volumes = map[string]*corev1.NodeSelector{}
	query := url.Values{"limit": {strconv.Itoa(page)}}
	for {
		var volumes corev1.PersistentVolumeList
		err := api.Read(ctx, "/api/v1/persistentvolumes", query, &volumes)
		if apierrors.IsForbidden(err) {
			f.VolumesHidden = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("list persistentvolumes: %w", err)
		}
		for i := range volumes.Items {
			v := &volumes.Items[i].Spec
			if v.ClaimRef != nil && v.NodeAffinity != nil && v.NodeAffinity.Required != nil {
				f.Volumes[v.ClaimRef.Namespace+"/"+v.ClaimRef.Name] = v.NodeAffinity.Required
			}
		}
		if volumes.Continue == "" {
			return nil
		}
		query.Set("continue", volumes.Continue)
	}
}

func on(node string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: v1.NodeNameLabel + "=" + node}
}

// noNodeError is an action.ErrNotFound.
type noNodeError struct{ node string }

func (e *noNodeError) Error() string {
	return fmt.Sprintf("nodes %q not found; kubectl get nodes lists them", e.node)
}
func (*noNodeError) Is(target error) bool { return target == action.ErrNotFound }
