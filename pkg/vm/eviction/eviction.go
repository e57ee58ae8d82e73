// Package eviction says what the eviction of a launcher pod means for the guest in it. It is pure.
//
//	kubectl drain, virtctl evacuate ─► pods/eviction ─► virt-api's webhook asks Decide
//	                                                      │ marks the VMI: status.evacuationNodeName
//	                                                      ▼
//	                     virt-controller's evacuation ─► a migration away from that node
//
// A VMI's eviction strategy decides: None lets the guest be shut down with its pod; LiveMigrate moves it, and
// keeps it where it is when it cannot move; LiveMigrateIfPossible moves it, and shuts it down when it cannot; External
// only marks it, for an external controller to act on. A guest whose VM has opted in (volumemigration.OptInAnnotation)
// is moved with its disks where it cannot move without them.
package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Default is the strategy where neither the VMI nor the KubeVirt resource names one; KubeVirt's.
const Default = v1.EvictionStrategyNone

// Strategies returns all eviction strategies.
func Strategies() []v1.EvictionStrategy {
	return []v1.EvictionStrategy{
		v1.EvictionStrategyNone, v1.EvictionStrategyLiveMigrate, v1.EvictionStrategyLiveMigrateIfPossible,
		v1.EvictionStrategyExternal,
	}
}

// Strategy returns the strategy that applies to a VMI; cluster is the installation's, which may be empty.
func Strategy(vmi *v1.VirtualMachineInstance, cluster v1.EvictionStrategy) v1.EvictionStrategy {
	switch {
	case vmi.Spec.EvictionStrategy != nil && *vmi.Spec.EvictionStrategy != "":
		return *vmi.Spec.EvictionStrategy
	case cluster != "":
		return cluster
	}
	return Default
}

// Alive reports whether there is a guest that an eviction would end: one that runs, or whose node does not answer so
// that nobody knows, and that nobody has asked to end.
func Alive(vmi *v1.VirtualMachineInstance) bool {
	return vmi.DeletionTimestamp == nil && (vmi.Status.Phase == v1.Running || vmi.Status.Phase == v1.Unknown)
}

// Moves reports whether a guest with this strategy is moved when its pod is evicted.
func Moves(vmi *v1.VirtualMachineInstance, strategy v1.EvictionStrategy) bool {
	return (strategy == v1.EvictionStrategyLiveMigrate || strategy == v1.EvictionStrategyLiveMigrateIfPossible) &&
		Movable(vmi)
}

// Movable reports whether a guest that is evicted can move: as it is, or with its disks where its VM has opted in.
func Movable(vmi *v1.VirtualMachineInstance) bool {
	return migrations.Migratable(vmi) || volumemigration.Takes(vmi)
}

// Obstacle returns why a guest cannot move, or "" when it can.
func Obstacle(vmi *v1.VirtualMachineInstance) string {
	condition := conditions.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	switch {
	case condition == nil:
		return "its node has not said yet whether it can move"
	case condition.Status == corev1.ConditionTrue:
		return ""
	case condition.Message != "":
		return condition.Message
	}
	return condition.Reason
}

// Protected reports whether a PodDisruptionBudget keeps the guest's pod from being evicted, whoever answers the
// webhook.
func Protected(vmi *v1.VirtualMachineInstance, strategy v1.EvictionStrategy) bool {
	if !Alive(vmi) {
		return false
	}
	switch strategy {
	case v1.EvictionStrategyLiveMigrate, v1.EvictionStrategyExternal:
		return true
	case v1.EvictionStrategyLiveMigrateIfPossible:
		return Movable(vmi)
	}
	return false
}

// Verdict is the answer to an eviction.
type Verdict struct {
	// Allow lets the pod be evicted, and with it the guest be shut down.
	Allow bool
	// Mark asks for status.evacuationNodeName to be set before the eviction is denied.
	Mark bool
	// Message says why it is denied.
	Message string
}

// Pod has the fields that Decide reads of the pod that is to be evicted.
type Pod struct {
	UID types.UID
	// Node is the node that it is on.
	Node string
	// Attachment: it is not the guest's but holds a volume for it.
	Attachment bool
}

// Decide answers the eviction of a pod that is a VMI's.
func Decide(vmi *v1.VirtualMachineInstance, pod Pod, cluster v1.EvictionStrategy) Verdict {
	name := vmi.Namespace + "/" + vmi.Name
	if !Alive(vmi) {
		return Verdict{Allow: true}
	}
	if pod.Attachment {
		return Verdict{Message: fmt.Sprintf(
			"the pod holds a volume that is plugged into VMI %q, and goes with the guest's own pod", name)}
	}
	if node, active := vmi.Status.ActivePods[pod.UID]; !active || node == "" || node != vmi.Status.NodeName {
		if active && migrations.UnderWay(vmi) && vmi.Status.MigrationState.TargetNode == node {
			return Verdict{Message: fmt.Sprintf("the guest of VMI %q is moving to this pod", name)}
		}
		return Verdict{Allow: true} // what is left of a migration
	}
	strategy := Strategy(vmi, cluster)
	switch {
	case strategy == v1.EvictionStrategyExternal, Moves(vmi, strategy):
	case strategy == v1.EvictionStrategyLiveMigrate:
		// The first half is KubeVirt's sentence, which programs look for.
		return Verdict{Message: fmt.Sprintf(
			"VMI %s is configured with an eviction strategy but is not live-migratable: %s", vmi.Name, Obstacle(vmi))}
	default:
		return Verdict{Allow: true}
	}
	// The descheduler looks for this sentence.
	message := fmt.Sprintf("Eviction triggered evacuation of VMI %q", name)
	if vmi.Status.EvacuationNodeName == vmi.Status.NodeName {
		return Verdict{Message: "Evacuation in progress: " + message}
	}
	return Verdict{Mark: true, Message: message}
}
