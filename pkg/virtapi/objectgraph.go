package virtapi

import (
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
)

// dependencyLabel on a node says of which kind the dependency is; KubeVirt's.
const dependencyLabel = "kubevirt.io/dependency-type"

// The values of dependencyLabel.
const (
	onStorage = "storage"
	onNetwork = "network"
	onCompute = "compute"
	onConfig  = "config"
)

// dependency is the group and the type of each kind in a graph.
var dependency = map[string]struct{ group, on string }{
	"VirtualMachine":                    {"kubevirt.io", onCompute},
	"VirtualMachineInstance":            {"kubevirt.io", onCompute},
	"Pod":                               {"", onCompute},
	"VirtualMachineInstancetype":        {"instancetype.kubevirt.io", onConfig},
	"VirtualMachineClusterInstancetype": {"instancetype.kubevirt.io", onConfig},
	"VirtualMachinePreference":          {"instancetype.kubevirt.io", onConfig},
	"VirtualMachineClusterPreference":   {"instancetype.kubevirt.io", onConfig},
	"ControllerRevision":                {"apps", onConfig},
	"ConfigMap":                         {"", onConfig},
	"Secret":                            {"", onConfig},
	"DataVolume":                        {"cdi.kubevirt.io", onStorage},
	"PersistentVolumeClaim":             {"", onStorage},
	"ServiceAccount":                    {"", onNetwork},
	"NetworkAttachmentDefinition":       {"k8s.cni.cncf.io", onNetwork},
}

// graphNode returns one object of a graph.
func graphNode(kind, namespace, name string, children ...v1.ObjectGraphNode) v1.ObjectGraphNode {
	of := dependency[kind]
	return v1.ObjectGraphNode{
		ObjectReference: corev1.TypedObjectReference{
			APIGroup: &of.group, Kind: kind, Namespace: &namespace,
			Name: name,
		},
		Labels:   map[string]string{dependencyLabel: of.on},
		Children: children,
	}
}

func optionalNode(node v1.ObjectGraphNode) v1.ObjectGraphNode {
	yes := true
	node.Optional = &yes
	return node
}

// machineGraph returns the objects that vm depends on. vmi is its VMI and pods are the VMI's, nil and empty when there
// is none.
func machineGraph(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, pods []string) v1.ObjectGraphNode {
	ns := vm.Namespace
	root := graphNode("VirtualMachine", ns, vm.Name)
	if vmi != nil {
		root.Children = append(root.Children, graphNode("VirtualMachineInstance", ns, vmi.Name, podNodes(ns, pods)...))
	}
	if m := vm.Spec.Instancetype; m != nil {
		root.Children = append(root.Children,
			referenceNodes(ns, instancetype.Instancetype, m.Kind, m.Name, m.RevisionName, vm.Status.InstancetypeRef)...)
	}
	if m := vm.Spec.Preference; m != nil {
		root.Children = append(root.Children,
			referenceNodes(ns, instancetype.Preference, m.Kind, m.Name, m.RevisionName, vm.Status.PreferenceRef)...)
	}
	if vm.Spec.Template != nil {
		root.Children = append(root.Children, specNodes(ns, &vm.Spec.Template.Spec)...)
	}
	return root
}

// instanceGraph returns the objects that vmi depends on.
func instanceGraph(vmi *v1.VirtualMachineInstance, pods []string) v1.ObjectGraphNode {
	return graphNode("VirtualMachineInstance", vmi.Namespace, vmi.Name,
		append(podNodes(vmi.Namespace, pods), specNodes(vmi.Namespace, &vmi.Spec)...)...)
}

func podNodes(namespace string, pods []string) []v1.ObjectGraphNode {
	var out []v1.ObjectGraphNode
	for _, pod := range pods {
		out = append(out, graphNode("Pod", namespace, pod))
	}
	return out
}

// referenceNodes returns the object that the VM names, which it can do without, and the copy of it, which it cannot.
func referenceNodes(
	namespace string, role instancetype.Role, kind, name, revision string, recorded *v1.InstancetypeStatusRef,
) []v1.ObjectGraphNode {
	var out []v1.ObjectGraphNode
	if kind, err := instancetype.KindOf(role, kind); err == nil && name != "" {
		where := namespace
		if strings.Contains(kind, "Cluster") {
			where = ""
		}
		out = append(out, optionalNode(graphNode(kind, where, name)))
	}
	if recorded != nil && recorded.ControllerRevisionRef != nil {
		revision = recorded.ControllerRevisionRef.Name
	}
	if revision != "" {
		out = append(out, graphNode("ControllerRevision", namespace, revision))
	}
	return out
}

// specNodes returns the objects that a VMI's spec names, each once.
func specNodes(namespace string, spec *v1.VirtualMachineInstanceSpec) []v1.ObjectGraphNode {
	var out []v1.ObjectGraphNode
	add := func(kind, name string, children ...v1.ObjectGraphNode) {
		same := func(n v1.ObjectGraphNode) bool {
			return n.ObjectReference.Kind == kind && n.ObjectReference.Name == name
		}
		if name != "" && !slices.ContainsFunc(out, same) {
			out = append(out, graphNode(kind, namespace, name, children...))
		}
	}
	for _, credential := range spec.AccessCredentials {
		if keys := credential.SSHPublicKey; keys != nil && keys.Source.Secret != nil {
			add("Secret", keys.Source.Secret.SecretName)
		}
		if password := credential.UserPassword; password != nil && password.Source.Secret != nil {
			add("Secret", password.Source.Secret.SecretName)
		}
	}
	for i := range spec.Volumes {
		for _, ref := range claims.References(&spec.Volumes[i]) {
			if ref.Kind == "DataVolume" {
				add(ref.Kind, ref.Name, graphNode("PersistentVolumeClaim", namespace, ref.Name))
				continue
			}
			add(ref.Kind, ref.Name)
		}
	}
	for _, network := range spec.Networks {
		if network.Multus == nil || network.Multus.NetworkName == "" {
			continue
		}
		where, name, both := strings.Cut(network.Multus.NetworkName, "/")
		if !both {
			where, name = namespace, where
		}
		out = append(out, optionalNode(graphNode("NetworkAttachmentDefinition", where, name)))
	}
	return out
}

// filtered leaves out, below the root, the nodes that options do not ask for, with all below them.
func filtered(nodes []v1.ObjectGraphNode, optional bool, selector labels.Selector) []v1.ObjectGraphNode {
	var out []v1.ObjectGraphNode
	for _, node := range nodes {
		if node.Optional != nil && *node.Optional && !optional || !selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		node.Children = filtered(node.Children, optional, selector)
		out = append(out, node)
	}
	return out
}

// objectGraph answers with the graph of a VM or a VMI.
func (q *requests) objectGraph(resource string) func(*restful.Request, *restful.Response) error {
	return func(r *restful.Request, w *restful.Response) error {
		options := &v1.ObjectGraphOptions{}
		if err := decode(r.Request, options); err != nil {
			return err
		}
		selector := labels.Everything()
		if options.LabelSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(options.LabelSelector); err != nil {
				return badRequest("labelSelector: " + err.Error())
			}
		}
		ctx, ns, name := r.Request.Context(), r.PathParameter("namespace"), r.PathParameter("name")
		var vm *v1.VirtualMachine
		var vmi *v1.VirtualMachineInstance
		var err error
		if resource == virtualMachines {
			vm, vmi, err = q.machines.machine(ctx, ns, name)
		} else {
			vmi, err = q.machines.vmi(ctx, ns, name)
		}
		if err != nil {
			return err
		}
		var pods []string
		if vmi != nil {
			launchers, err := q.machines.podsOf(ctx, vmi)
			if err != nil {
				return err
			}
			for i := range launchers {
				pods = append(pods, launchers[i].Name)
			}
		}
		var graph v1.ObjectGraphNode
		if vm != nil {
			graph = machineGraph(vm, vmi, pods)
		} else {
			graph = instanceGraph(vmi, pods)
		}
		graph.Children = filtered(graph.Children, options.IncludeOptionalNodes == nil ||
			*options.IncludeOptionalNodes, selector)
		return answer(w, graph)
	}
}
