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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

var networkDefinition = schema.GroupVersionKind{
	Group: "k8s.cni.cncf.io", Version: "v1",
	Kind: "NetworkAttachmentDefinition",
}

// NetworkResources returns the extended resources that the NetworkAttachmentDefinitions of a VMI's networks ask for by
// annotation, by the network's name. A definition that does not exist asks for none: Multus reports it. For an
// interface with sriov that is an error, and so is a definition that asks for nothing; errors name the definition.
func NetworkResources(
	ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance,
) (map[string]string, error) {
	definitions := network.Definitions(vmi)
	if len(definitions) == 0 {
		return nil, nil
	}
	sriov := map[string]bool{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		sriov[nic.Name] = nic.SRIOV != nil
	}
	out := map[string]string{}
	for _, of := range slices.Sorted(maps.Keys(definitions)) {
		key := types.NamespacedName{Namespace: definitions[of][0], Name: definitions[of][1]}
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(networkDefinition)
		err := from.Get(ctx, key, found)
		gone := apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
		if err != nil && !gone {
			return nil, fmt.Errorf("get NetworkAttachmentDefinition %s: %w", key, err)
		}
		name := found.Annotations[network.AnnotationResource]
		switch {
		case gone && sriov[of]:
			return nil, fmt.Errorf("network %q: there is no NetworkAttachmentDefinition %s, which says for sriov "+
				"which resource to ask for; create it", of, key)
		case name == "" && sriov[of]:
			return nil, fmt.Errorf("network %q: NetworkAttachmentDefinition %s has no annotation %s, which says for "+
				"sriov which resource to ask for", of, key, network.AnnotationResource)
		case name == "":
			continue
		case !extended(name):
			return nil,
				fmt.Errorf("network %q: annotation %s of NetworkAttachmentDefinition %s is not the name of a "+
					"resource of a device plugin, such as intel.com/sriov_net: %q", of,
					network.AnnotationResource, key, name)
		}
		out[of] = name
	}
	return out, nil
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
