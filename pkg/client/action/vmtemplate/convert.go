package vmtemplate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Convert makes a VirtualMachineTemplate of a Template of OpenShift's, YAML or JSON, that has one object.
func Convert(data []byte) (*unstructured.Unstructured, error) {
	var in struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name        string            `json:"name,omitempty"`
			Namespace   string            `json:"namespace,omitempty"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Message    string           `json:"message"`
		Objects    []map[string]any `json:"objects"`
		Parameters []Parameter      `json:"parameters"`
	}
	if err := yaml.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("read the Template: %w", unreadable(err))
	}
	group, _, _ := strings.Cut(in.APIVersion, "/")
	// OpenShift has served them as v1, too.
	if in.Kind != OpenShift || group != "template.openshift.io" && in.APIVersion != "v1" {
		return nil, fmt.Errorf("it is a %q of %q, not a Template of template.openshift.io", in.Kind, in.APIVersion)
	}
	if len(in.Objects) != 1 {
		return nil, fmt.Errorf("template must contain exactly one object, found %d", len(in.Objects))
	}
	if kind, _ := in.Objects[0]["kind"].(string); kind != "VirtualMachine" {
		return nil, fmt.Errorf("objects[0]: it is a %q, not a VirtualMachine", kind)
	}
	out := map[string]any{
		"apiVersion": Group + "/" + version, "kind": Kind, "metadata": in.Metadata,
		"spec": struct {
			VirtualMachine map[string]any `json:"virtualMachine"`
			Parameters     []Parameter    `json:"parameters,omitempty"`
			Message        string         `json:"message,omitempty"`
		}{in.Objects[0], in.Parameters, in.Message},
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write the %s: %w", Kind, err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return nil, fmt.Errorf("write the %s: %w", Kind, err)
	}
	return object, nil
}
