// Package migrationcontroller is the reconciler VirtualMachineInstanceMigration → a second launcher pod, on another
// node, into which the guest moves. Its inputs are the migration, its VMI, and the pod; its outputs are the
// pod, the migration's status, and the beginning of the VMI's status.migrationState:
//
//	virt-controller   Pending → Scheduling: the pod; Scheduled: migrationState, the label that shows the VMI to
//	                  the target node's virt-handler
//	target's handler  PreparingTarget → TargetReady: its address in migrationState
//	source's handler  Running: startTimestamp; or the failure
//	target's handler  Succeeded: nodeName and the end
//
// The core is pure: Pod (this file) plans the target pod, and Next (next.go) decides what to do.
package migrationcontroller

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// PodName returns the name of a migration's pod. It depends on the migration alone, so that a second one cannot be
// made.
func PodName(migration *v1.VirtualMachineInstanceMigration, instance *v1.VirtualMachineInstance) string {
	return vmicontroller.LauncherName(instance.Name, migration.UID)
}

// Pod returns the launcher pod to which a VMI's guest moves: the pod that the VMI has, on any other node.
func Pod(
	migration *v1.VirtualMachineInstanceMigration, instance *v1.VirtualMachineInstance, facts vmicontroller.Facts,
) *corev1.Pod {
	// What the guest has it keeps: one that is emulated does not become a hardware one on the way.
	facts.KVM = !emulated(instance)
	pod := vmicontroller.Pod(instance, facts)
	pod.Name = PodName(migration, instance)
	pod.Labels[v1.MigrationJobLabel] = string(migration.UID)
	pod.Annotations[v1.MigrationJobNameAnnotation] = migration.Name
	pod.Annotations[names.AnnotationClaims] = volumemigration.Fingerprint(&instance.Spec)
	pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, "--migration-target")
	pod.Spec.Containers[0].StartupProbe = vmicontroller.TargetProbe(instance)

	selector := maps.Clone(migration.Spec.AddedNodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, pod.Spec.NodeSelector) // it may restrict but not replace what the VMI says
	pod.Spec.NodeSelector = selector
	withoutSecrets(pod)
	pod.Spec.Affinity = elsewhere(pod.Spec.Affinity, instance.Status.NodeName)
	return pod
}

// emulated reports whether a guest that runs is emulated.
func emulated(instance *v1.VirtualMachineInstance) bool {
	return conditions.True(instance.Status.Conditions, names.ConditionSoftwareEmulation)
}

// withoutSecrets lets the pod start although a Secret or ConfigMap is gone: the guest brings what was made of it.
func withoutSecrets(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Secret != nil {
			v.Secret.Optional = new(true)
		}
		if v.ConfigMap != nil {
			v.ConfigMap.Optional = new(true)
		}
	}
}

// elsewhere adds to an affinity that the pod must not run on a node.
func elsewhere(affinity *corev1.Affinity, node string) *corev1.Affinity {
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	// The terms are alternatives, so each must say it.
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
		})
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	return affinity
}
