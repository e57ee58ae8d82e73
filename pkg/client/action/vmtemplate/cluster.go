package vmtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// API has the methods of a client that the package calls.
type API interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
	Names(ctx context.Context, group, namespace, resource string) ([]string, error)
	CreateObject(ctx context.Context, group, namespace, resource string, object *unstructured.Unstructured, dryRun bool,
	) (*unstructured.Unstructured, error)
}

// ErrNoTemplates is a cluster without the kind of templates that is asked for.
var ErrNoTemplates = errors.New("no templates")

// served returns the version in which the cluster serves a group; when it does not, the error says whose the group is.
func served(ctx context.Context, api API, group, whose string) (string, error) {
	var found metav1.APIGroup
	err := api.Read(ctx, "/apis/"+group, nil, &found)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w: the cluster does not have %s, which comes with %s", ErrNoTemplates, group, whose)
	}
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", group, err)
	}
	return found.PreferredVersion.GroupVersion, nil
}

// source is a kind of templates of the cluster.
type source struct{ group, whose, resource string }

var (
	ours      = source{Group, addOn, "virtualmachinetemplates"}
	openShift = source{"template.openshift.io", "OpenShift", "templates"}
)

// Names lists the VirtualMachineTemplates of a namespace.
func Names(ctx context.Context, api API, namespace string) ([]string, error) {
	return ours.names(ctx, api, namespace)
}

// NamesOpenShift lists the Templates of a namespace.
func NamesOpenShift(ctx context.Context, api API, namespace string) ([]string, error) {
	return openShift.names(ctx, api, namespace)
}

func (s source) names(ctx context.Context, api API, namespace string) ([]string, error) {
	version, err := served(ctx, api, s.group, s.whose)
	if err != nil {
		return nil, err
	}
	return api.Names(ctx, "/apis/"+version, namespace, s.resource)
}

// read returns the JSON of a template.
func (s source) read(ctx context.Context, api API, namespace, name string) ([]byte, error) {
	version, err := served(ctx, api, s.group, s.whose)
	if errors.Is(err, ErrNoTemplates) {
		return nil, fmt.Errorf("%w; give the template with --file", err)
	}
	if err != nil {
		return nil, err
	}
	var object json.RawMessage
	path := fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s", version, url.PathEscape(namespace), s.resource,
		url.PathEscape(name))
	if err := api.Read(ctx, path, nil, &object); err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// addOn is what brings templates to a cluster.
const addOn = "KubeVirt's add-on virt-template"

// Get reads a VirtualMachineTemplate of the cluster.
func Get(ctx context.Context, api API, namespace, name string) ([]byte, error) {
	return ours.read(ctx, api, namespace, name)
}

// GetOpenShift reads a Template of the cluster.
func GetOpenShift(ctx context.Context, api API, namespace, name string) ([]byte, error) {
	return openShift.read(ctx, api, namespace, name)
}

// Request asks the add-on for a template of a VM, with the name that is given, or one of the request's.
func Request(namespace, machineNamespace, machine, template string) *unstructured.Unstructured {
	spec := map[string]any{"virtualMachineRef": map[string]any{"namespace": machineNamespace, "name": machine}}
	if template != "" {
		spec["templateName"] = template
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Group + "/" + version, "kind": "VirtualMachineTemplateRequest",
		"metadata": map[string]any{"generateName": machine + "-", "namespace": namespace},
		"spec":     spec,
	}}
}

// Create makes a Request, in the version that the cluster has.
func Create(
	ctx context.Context, api API, request *unstructured.Unstructured, dryRun bool,
) (*unstructured.Unstructured, error) {
	version, err := served(ctx, api, Group, addOn)
	if err != nil {
		return nil, err
	}
	request = request.DeepCopy()
	request.SetAPIVersion(version)
	created, err := api.CreateObject(ctx, "/apis/"+version, request.GetNamespace(), "virtualmachinetemplaterequests",
		request, dryRun)
	if err != nil {
		return nil, fmt.Errorf("ask for a template: %w", err)
	}
	return created, nil
}
