package vmicontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

var networkDefinition = schema.GroupVersionKind{
	Group: "k8s.cni.cncf.io", Version: "v1",
	Kind: "NetworkAttachmentDefinition",
}

// Networks reads the NetworkAttachmentDefinitions of a VMI's networks. It returns, by the network's name, the extended
// resources that they ask for by annotation, and how the networks keep addresses. A definition that does not exist asks
// for none: Multus reports it. For an interface with sriov that is an error, and so is a definition that asks for
// nothing; errors name the definition.
func Networks(
	ctx context.Context, cache, from client.Reader, vmi *v1.VirtualMachineInstance,
) (map[string]string, map[string]ipaddress.Keeping, error) {
	definitions := network.Definitions(vmi)
	if len(definitions) == 0 {
		return nil, nil, nil
	}
	interfaces, networks := macaddress.Interfaces(&vmi.Spec)
	sriov, nics := map[string]bool{}, map[string]*v1.Interface{}
	for i := range interfaces {
		nic := &interfaces[i]
		nics[nic.Name], sriov[nic.Name] = nic, nic.SRIOV != nil
	}
	on, err := guestNetworks(ctx, cache, vmi)
	if err != nil {
		return nil, nil, err
	}
	resources, keepings := map[string]string{}, map[string]ipaddress.Keeping{}
	for _, of := range slices.Sorted(maps.Keys(definitions)) {
		key := types.NamespacedName{Namespace: definitions[of][0], Name: definitions[of][1]}
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(networkDefinition)
		err := from.Get(ctx, key, found)
		gone := apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
		if err != nil && !gone {
			return nil, nil, fmt.Errorf("get NetworkAttachmentDefinition %s: %w", key, err)
		}
		if nic := nics[of]; nic != nil && !gone {
			k := keeping(vmi, nic, networks[of], found)
			there := on[network.LinkOf(*networks[of])]
			k.Comes = there != "" && there != k.Network
			keepings[of] = k
		}
		name := found.GetAnnotations()[network.AnnotationResource]
		switch {
		case gone && sriov[of]:
			return nil, nil, fmt.Errorf("network %q: there is no NetworkAttachmentDefinition %s, which says for sriov "+
				"which resource to ask for; create it", of, key)
		case name == "" && sriov[of]:
			return nil, nil,
				fmt.Errorf("network %q: NetworkAttachmentDefinition %s has no annotation %s, which says for sriov "+
					"which resource to ask for", of, key, network.AnnotationResource)
		case name == "":
			continue
		case !extended(name):
			return nil, nil,
				fmt.Errorf("network %q: annotation %s of NetworkAttachmentDefinition %s is not the name of a "+
					"resource of a device plugin, such as intel.com/sriov_net: %q", of,
					network.AnnotationResource, key, name)
		}
		resources[of] = name
	}
	return resources, keepings, nil
}

// guestNetworks returns the networks that the pod of a VMI's guest is on, NAMESPACE/NAME by the link's name; none
// before there is such a pod.
func guestNetworks(
	ctx context.Context, cache client.Reader, vmi *v1.VirtualMachineInstance,
) (map[string]string, error) {
	if vmi.Status.NodeName == "" {
		return nil, nil
	}
	var pods corev1.PodList
	err := cache.List(ctx, &pods, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.CreatedByLabel: string(vmi.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	for i := range pods.Items {
		if life.GuestIn(vmi, &pods.Items[i]) {
			return network.DefinitionsOf(pods.Items[i].Annotations), nil
		}
	}
	return nil, nil
}

// keeping returns how a network keeps the addresses of an interface. A definition that cannot be read keeps none: the
// CNI plugins say what is wrong with it.
func keeping(
	vmi *v1.VirtualMachineInstance, nic *v1.Interface, n *v1.Network, found *unstructured.Unstructured,
) ipaddress.Keeping {
	text, _, _ := unstructured.NestedString(found.Object, "spec", "config")
	definition, err := ipaddress.ParseDefinition(text)
	if err != nil {
		return ipaddress.Keeping{}
	}
	wished := len(ipaddress.Wished(vmi.Annotations, nic.Name)) > 0
	return ipaddress.Keep(vmi.Namespace, nic, n, wished, definition)
}

// extended reports the name of a resource that a device plugin may offer.
func extended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && len(validation.IsQualifiedName(name)) == 0 && domain != "kubernetes.io" &&
		!strings.HasSuffix(domain, ".kubernetes.io")
}

// requestNetworks adds one of its resource for each network.
func requestNetworks(out *corev1.ResourceRequirements, resources map[string]string) {
	one := resource.MustParse("1")
	for _, name := range resources {
		sum := out.Limits[corev1.ResourceName(name)].DeepCopy()
		sum.Add(one)
		out.Limits[corev1.ResourceName(name)], out.Requests[corev1.ResourceName(name)] = sum, sum
	}
}

// networkVariables pass to the launcher which resource each network has, by which it finds what a device plugin gave
// the pod.
func networkVariables(resources map[string]string) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, of := range slices.Sorted(maps.Keys(resources)) {
		out = append(out, corev1.EnvVar{Name: passthrough.NetworkResource(of), Value: resources[of]})
	}
	return out
}
