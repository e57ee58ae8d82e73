package kubevirtcontroller

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// component is the progress of one component's rollout.
type component struct {
	name string
	// missing: it does not exist. updated: every pod has the current template. available: enough pods are ready for it
	// to work. all: every pod is ready.
	missing, updated, available, all bool
	says                             string
}

// Status returns the resource's status as it should be.
func Status(view View) v1.KubeVirtStatus {
	status := *view.KubeVirt.Status.DeepCopy()
	components := []component{
		deployment(names.VirtAPI, view.Deployments[names.VirtAPI]),
		deployment(names.VirtController, view.Deployments[names.VirtController]),
		daemonSet(names.VirtHandler, view.DaemonSets[names.VirtHandler]),
	}
	missing := say(components, func(c component) bool { return c.missing })
	unavailable := say(components, func(c component) bool { return !c.available })
	unfinished := say(components, func(c component) bool { return !c.updated || !c.all })
	set := func(conditionType v1.KubeVirtConditionType, holds bool, reason, message string) {
		is := corev1.ConditionFalse
		if holds {
			is = corev1.ConditionTrue
		}
		conditions.Set(&status.Conditions,
			v1.KubeVirtCondition{Type: conditionType, Status: is, Reason: reason, Message: message}, view.Now)
	}

	if missing == "" {
		set(v1.KubeVirtConditionCreated, true, "AllResourcesCreated", "All resources were created.")
	} else {
		set(v1.KubeVirtConditionCreated, false, "ResourcesMissing", missing)
	}
	available := unavailable == ""
	if available {
		set(v1.KubeVirtConditionAvailable, true, "AllComponentsReady", "All components are ready.")
	} else {
		set(v1.KubeVirtConditionAvailable, false, "ComponentsNotReady", unavailable)
	}
	if unfinished == "" {
		set(v1.KubeVirtConditionProgressing, false, "AllComponentsReady", "All components are ready.")
	} else {
		set(v1.KubeVirtConditionProgressing, true, "ComponentsRollingOut", unfinished)
	}
	deployed := status.Phase == v1.KubeVirtPhaseDeployed
	switch {
	case deployed && !available:
		set(v1.KubeVirtConditionDegraded, true, "ComponentsNotReady", unavailable)
	case available:
		set(v1.KubeVirtConditionDegraded, false, "AllComponentsReady", "All components are ready.")
	default:
		set(v1.KubeVirtConditionDegraded, false, "Deploying", "The components are being deployed.")
	}

	status.OperatorVersion = view.Version
	status.TargetKubeVirtVersion = view.Version
	status.DefaultArchitecture = view.Architecture
	status.ObservedGeneration = &view.KubeVirt.Generation
	switch {
	case view.KubeVirt.DeletionTimestamp != nil:
		status.Phase = v1.KubeVirtPhaseDeleting
	case available:
		// Once deployed it stays so; Available and Degraded say how it fares.
		status.Phase = v1.KubeVirtPhaseDeployed
		if unfinished == "" {
			status.ObservedKubeVirtVersion = view.Version
		}
	case !deployed:
		status.Phase = v1.KubeVirtPhaseDeploying
	}
	status.Generations = generations(view)
	return status
}

func deployment(name string, d *appsv1.Deployment) component {
	if d == nil {
		return component{name: name, missing: true, says: "does not exist"}
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	observed := s.ObservedGeneration >= d.Generation
	return component{
		name:      name,
		updated:   observed && s.UpdatedReplicas >= want,
		available: observed && s.AvailableReplicas >= min(want, 1),
		all:       observed && s.AvailableReplicas >= want && s.Replicas <= max(want, s.UpdatedReplicas),
		says:      fmt.Sprintf("%d of %d ready", s.AvailableReplicas, want),
	}
}

// daemonSet returns the progress of a DaemonSet. It is available when more than half of its nodes are served, so that
// one node of many that is down does not make the whole installation unavailable.
func daemonSet(name string, d *appsv1.DaemonSet) component {
	if d == nil {
		return component{name: name, missing: true, says: "does not exist"}
	}
	s := d.Status
	observed := s.ObservedGeneration >= d.Generation && s.ObservedGeneration > 0
	want := s.DesiredNumberScheduled
	all := observed && s.NumberAvailable >= want
	return component{
		name:      name,
		updated:   observed && s.UpdatedNumberScheduled >= want,
		available: all || observed && s.NumberAvailable*2 > want,
		all:       all,
		says:      fmt.Sprintf("%d of %d ready", s.NumberAvailable, want),
	}
}

// say lists those components for which it is true, or is empty.
func say(components []component, is func(component) bool) string {
	var out []string
	for _, c := range components {
		if is(c) {
			out = append(out, c.name+" "+c.says)
		}
	}
	return strings.Join(out, "; ")
}

func generations(view View) []v1.GenerationStatus {
	var out []v1.GenerationStatus
	add := func(resource, name string, generation int64) {
		out = append(out, v1.GenerationStatus{
			Group: appsv1.GroupName, Resource: resource, Namespace: view.KubeVirt.Namespace, Name: name,
			LastGeneration: generation,
		})
	}
	for _, name := range []string{names.VirtAPI, names.VirtController} {
		if d := view.Deployments[name]; d != nil {
			add("deployments", name, d.Generation)
		}
	}
	if d := view.DaemonSets[names.VirtHandler]; d != nil {
		add("daemonsets", names.VirtHandler, d.Generation)
	}
	return out
}
