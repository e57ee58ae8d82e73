package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/manifests"
)

// Settings are what may differ between two installations. The zero value means what the manifests say.
type Settings struct {
	// Registry replaces the images' registry and path, "ghcr.io/virtkit"; Tag replaces their tag, "dev".
	Registry, Tag string
	// PullPolicy is IfNotPresent, Always or Never, for the components and the launcher's image.
	PullPolicy string
	// KubeletDir is the kubelet's root directory on the nodes when it is not /var/lib/kubelet.
	KubeletDir string
	// PodAnnotations are added to every pod of the components; a change of them rolls the pods over.
	PodAnnotations map[string]string
	// PullSecrets are added to every component's pods. Infra is of virt-api and virt-controller, Workloads of
	// virt-handler; nil says nothing. The KubeVirt resource has them (Installer.Follow).
	PullSecrets      []corev1.LocalObjectReference
	Infra, Workloads *v1.ComponentConfig

	// Given are what this installation and those before were given (Installer.Follow); nil when that is not known.
	Given *Kept
}

// Objects returns everything to install, in the order of installation: the custom resource definitions,
// then what manifests/base/kustomization.yaml lists, as it lists it.
func Objects(s Settings) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, dir := range []string{"crds", "base"} {
		objects, err := load(dir)
		if err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
		all = append(all, objects...)
	}
	for _, o := range all {
		if err := s.change(o); err != nil {
			return nil, fmt.Errorf("manifests: %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return all, nil
}

// load decodes the files of one embedded kustomization.
func load(dir string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.FS.ReadFile(path.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := sigsyaml.Unmarshal(text, &kustomization); err != nil {
		return nil, fmt.Errorf("%s/kustomization.yaml: %w", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, name := range kustomization.Resources {
		text, err := manifests.FS.ReadFile(path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", dir, name, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// change applies the settings to one object; only workloads have anything to change.
func (s Settings) change(o *unstructured.Unstructured) error {
	if err := s.replicas(o); err != nil {
		return err
	}
	switch o.GetKind() {
	case "Deployment", "DaemonSet":
	default:
		return nil
	}
	if err := s.record(o); err != nil {
		return err
	}
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !found {
		return errors.Join(errors.New("no pod template"), err)
	}
	s.walk(template)
	for key, value := range s.PodAnnotations {
		if err := unstructured.SetNestedField(template, value, "metadata", "annotations", key); err != nil {
			return err
		}
	}
	pod, found, err := unstructured.NestedMap(template, "spec")
	if err != nil || !found {
		return errors.Join(errors.New("no pod in the template"), err)
	}
	if err := s.place(o.GetKind(), pod); err != nil {
		return err
	}
	template["spec"] = pod
	return unstructured.SetNestedMap(o.Object, template, "spec", "template")
}

// walk visits every value of a pod template: a string that names one of our images is an image, wherever it is.
func (s Settings) walk(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if text, ok := child.(string); ok {
				v[key] = s.text(key, text)
			} else {
				s.walk(child)
			}
		}
	case []any:
		for _, child := range v {
			s.walk(child)
		}
	}
}

const (
	defaultRegistry   = "ghcr.io/virtkit"
	defaultKubeletDir = "/var/lib/kubelet"
)

func (s Settings) text(key, text string) string {
	if rest, ours := strings.CutPrefix(text, defaultRegistry+"/"); ours {
		name, tag, _ := strings.Cut(rest, ":")
		registry := defaultRegistry
		if s.Registry != "" {
			registry = strings.TrimSuffix(s.Registry, "/")
		}
		if s.Tag != "" {
			tag = s.Tag
		}
		return registry + "/" + name + ":" + tag
	}
	switch key {
	case "imagePullPolicy", "pullPolicy":
		if s.PullPolicy != "" {
			return s.PullPolicy
		}
	case "path": // of a hostPath; where it is mounted stays
		if rest, below := strings.CutPrefix(text, defaultKubeletDir+"/"); below && s.KubeletDir != "" {
			return path.Join(s.KubeletDir, rest)
		}
	}
	return text
}

// TagOf returns the images' tag that belongs to a version of virtctl: the version itself, or "dev" for a build
// that is no release.
func TagOf(gitVersion string) string {
	if gitVersion == "" || strings.HasSuffix(gitVersion, "-dev") {
		return "dev"
	}
	return gitVersion
}
