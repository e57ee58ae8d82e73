package install

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Follow fills in what the KubeVirt resource says of the components and the settings do not: how their images are
// pulled, where their pods go, and how many there are; then what installations before were given. A cluster without
// the resource says nothing.
func (i *Installer) Follow(ctx context.Context, s Settings) (Settings, error) {
	kv, err := i.kubeVirt(ctx)
	if err != nil {
		return s, err
	}
	recorded, err := i.before(ctx)
	if err != nil {
		return s, err
	}
	policy := s.PullPolicy
	if s, err = s.keep(recorded); err != nil {
		return s, err
	}
	s = s.following(&kv.Spec)
	s.PullPolicy = cmp.Or(policy, s.PullPolicy, s.Given.PullPolicy)
	return s, nil
}

func (s Settings) following(spec *v1.KubeVirtSpec) Settings {
	if s.PullPolicy == "" {
		s.PullPolicy = string(spec.ImagePullPolicy)
	}
	s.PullSecrets, s.Infra, s.Workloads = spec.ImagePullSecrets, spec.Infra, spec.Workloads
	return s
}

// placed is what of a component's pods the KubeVirt resource may say.
type placed struct {
	NodeSelector     map[string]string             `json:"nodeSelector,omitempty"`
	Tolerations      []corev1.Toleration           `json:"tolerations,omitempty"`
	Affinity         *corev1.Affinity              `json:"affinity,omitempty"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// place adds to a component's pods what is said of their nodes and pull secrets: nodes must have the labels of both,
// and tolerations and terms of affinity come after the manifests'.
func (s Settings) place(kind string, pod map[string]any) error {
	component := s.Workloads
	if kind == "Deployment" {
		component = s.Infra
	}
	var p placed
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod, &p); err != nil {
		return err
	}
	p.ImagePullSecrets = append(p.ImagePullSecrets, s.PullSecrets...)
	if component != nil && component.NodePlacement != nil {
		given := component.NodePlacement
		for key, value := range given.NodeSelector {
			if p.NodeSelector == nil {
				p.NodeSelector = map[string]string{}
			}
			p.NodeSelector[key] = value
		}
		p.Tolerations = append(p.Tolerations, given.Tolerations...)
		p.Affinity = both(p.Affinity, given.Affinity)
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p)
	if err != nil {
		return err
	}
	for key, value := range out {
		pod[key] = value
	}
	return nil
}

// both returns the manifests' affinity combined with the given one: the terms of both; of node affinity, of whose terms
// one has to match, the given one alone.
func both(ours, given *corev1.Affinity) *corev1.Affinity {
	if ours == nil || given == nil {
		if given == nil {
			return ours
		}
		return given
	}
	out := ours.DeepCopy()
	if given.NodeAffinity != nil {
		out.NodeAffinity = given.NodeAffinity
	}
	// Both kinds have the same fields, so a pointer to one is a pointer to the other.
	type terms = corev1.PodAffinity
	out.PodAffinity = bothTerms(out.PodAffinity, given.PodAffinity)
	out.PodAntiAffinity = (*corev1.PodAntiAffinity)(
		bothTerms((*terms)(out.PodAntiAffinity), (*terms)(given.PodAntiAffinity)))
	return out
}

// bothTerms returns ours followed by the terms of given; either may be nil.
func bothTerms(ours, given *corev1.PodAffinity) *corev1.PodAffinity {
	if ours == nil || given == nil {
		return cmp.Or(ours, given)
	}
	out := ours.DeepCopy()
	out.RequiredDuringSchedulingIgnoredDuringExecution = append(out.RequiredDuringSchedulingIgnoredDuringExecution,
		given.RequiredDuringSchedulingIgnoredDuringExecution...)
	out.PreferredDuringSchedulingIgnoredDuringExecution = append(out.PreferredDuringSchedulingIgnoredDuringExecution,
		given.PreferredDuringSchedulingIgnoredDuringExecution...)
	return out
}

// replicas sets how many pods virt-api and virt-controller have. The one pod of a component may be evicted, or its node
// could never be drained.
func (s Settings) replicas(o *unstructured.Unstructured) error {
	if s.Infra == nil || s.Infra.Replicas == nil {
		return nil
	}
	n := int64(*s.Infra.Replicas)
	switch {
	case o.GetName() == names.VirtExportProxy:
		return nil // virt-controller says how many it has
	case o.GetKind() == "Deployment":
		return unstructured.SetNestedField(o.Object, n, "spec", "replicas")
	case o.GetKind() == "PodDisruptionBudget" && n == 1:
		if name := o.GetName(); name != names.VirtAPI && name != names.VirtController {
			return errors.New("is of no component that has replicas")
		}
		unstructured.RemoveNestedField(o.Object, "spec", "minAvailable")
		return unstructured.SetNestedField(o.Object, int64(1), "spec", "maxUnavailable")
	}
	return nil
}
