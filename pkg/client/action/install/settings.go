package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/names"
)

// SettingsAnnotation is on the Deployment of virt-controller: the settings that the cluster was installed with and the
// manifests do not have, as JSON. An installation without them keeps them.
const SettingsAnnotation = "virtkit.io/install-settings"

// Kept are the settings that an installation keeps from the one before.
type Kept struct {
	Registry       string            `json:"registry,omitempty"`
	PullPolicy     string            `json:"pullPolicy,omitempty"`
	KubeletDir     string            `json:"kubeletDir,omitempty"`
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
}

// record writes the settings that are to be kept into virt-controller's Deployment, once they are known.
func (s Settings) record(o *unstructured.Unstructured) error {
	if s.Given == nil || o.GetName() != names.VirtController {
		return nil
	}
	text, err := json.Marshal(s.Given)
	if err != nil || string(text) == "{}" {
		return err
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[SettingsAnnotation] = string(text)
	o.SetAnnotations(annotations)
	return nil
}

// keep fills in what an installation before had and the settings do not say. An annotation of pods that is given with
// an empty value goes.
func (s Settings) keep(recorded string) (Settings, error) {
	var before Kept
	if recorded != "" {
		if err := json.Unmarshal([]byte(recorded), &before); err != nil {
			return s, fmt.Errorf("read annotation %s of Deployment %s: %w", SettingsAnnotation, names.VirtController,
				err)
		}
	}
	annotations := map[string]string{}
	maps.Copy(annotations, before.PodAnnotations)
	maps.Copy(annotations, s.PodAnnotations)
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	s.Given = &Kept{
		Registry: cmp.Or(s.Registry, before.Registry), PullPolicy: cmp.Or(s.PullPolicy, before.PullPolicy),
		KubeletDir: cmp.Or(s.KubeletDir, before.KubeletDir), PodAnnotations: annotations,
	}
	s.Registry, s.KubeletDir, s.PodAnnotations = s.Given.Registry, s.Given.KubeletDir, annotations
	return s, nil
}

// before reads what is recorded of the installation that there is; empty without one.
func (i *Installer) before(ctx context.Context) (string, error) {
	o, err := i.Client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(names.Namespace).
		Get(ctx, names.VirtController, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get Deployment %s: %w", names.VirtController, err)
	}
	return o.GetAnnotations()[SettingsAnnotation], nil
}
