package vmistatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// obstacle is something that keeps a VMI on its node, and the condition's reason for it.
type obstacle struct {
	reason string
	migrations.Obstacle
}

// migratable sets the conditions whether the guest could move to another node, and whether it could if its disks were
// copied along: in KubeVirt the latter leaves all disks out, here it has those that cannot be copied, last, so that its
// reason is theirs only if nothing else is in the way. pod is the pod that it is in, nil when that is gone.
func migratable(
	vmi *v1.VirtualMachineInstance, pod *corev1.Pod, plan *network.Plan, emulated bool, c *conditionList,
) {
	others := slices.Concat(networkObstacles(vmi), pluginObstacles(plan), cpuObstacles(vmi, emulated),
		clockObstacles(vmi, emulated), hypervObstacles(vmi, emulated), deviceObstacles(vmi), encryptionObstacles(vmi),
		placementObstacles(vmi, pod))
	set := func(kind v1.VirtualMachineInstanceConditionType, found []obstacle) {
		if len(found) == 0 {
			c.set(kind, corev1.ConditionTrue, "", "")
			return
		}
		var all []migrations.Obstacle
		for _, o := range found {
			all = append(all, o.Obstacle)
		}
		c.set(kind, corev1.ConditionFalse, found[0].reason, migrations.EncodeObstacles(all))
	}
	set(v1.VirtualMachineInstanceIsMigratable, slices.Concat(diskObstacles(vmi), others))
	set(v1.VirtualMachineInstanceIsStorageLiveMigratable, slices.Concat(others, stuckObstacles(vmi)))
}

// field returns an obstacle of which a field of the spec is the cause.
func field(path, text string) migrations.Obstacle {
	return migrations.Obstacle{Kind: migrations.Field, Object: path, Text: text}
}

func diskObstacles(vmi *v1.VirtualMachineInstance) []obstacle {
	var found []obstacle
	for _, v := range vmi.Spec.Volumes {
		for _, tied := range slices.Concat(volumemigration.Local(&v), volumemigration.Tied(vmi, &v)) {
			found = append(found, obstacle{v1.VirtualMachineInstanceReasonDisksNotMigratable, tied})
		}
	}
	return found
}

// stuckObstacles finds the disks and file systems that two nodes cannot use at once and that cannot be copied.
func stuckObstacles(vmi *v1.VirtualMachineInstance) []obstacle {
	var found []obstacle
	for _, stuck := range volumemigration.Stuck(vmi) {
		found = append(found, obstacle{v1.VirtualMachineInstanceReasonDisksNotMigratable, stuck})
	}
	return found
}

func networkObstacles(vmi *v1.VirtualMachineInstance) []obstacle {
	if _, allowed := vmi.Annotations[v1.AllowPodBridgeNetworkLiveMigrationAnnotation]; allowed {
		return nil
	}
	pod := map[string]bool{}
	for _, n := range vmi.Spec.Networks {
		pod[n.Name] = n.Pod != nil
	}
	for _, i := range vmi.Spec.Domain.Devices.Interfaces {
		if pod[i.Name] && i.Bridge != nil {
			return []obstacle{{
				v1.VirtualMachineInstanceReasonInterfaceNotMigratable,
				migrations.Obstacle{
					Kind: migrations.Interface, Object: i.Name,
					Text: "has the pod's own address (bridge), which another node cannot have; masquerade can migrate",
				},
			}}
		}
	}
	return nil
}

// pluginObstacles finds binding plugins on the pod network that do not say how to migrate.
func pluginObstacles(plan *network.Plan) []obstacle {
	if plan == nil {
		return nil
	}
	for _, nic := range plan.Interfaces {
		if nic.Stays {
			return []obstacle{{
				v1.VirtualMachineInstanceReasonInterfaceNotMigratable,
				migrations.Obstacle{
					Kind: migrations.Interface, Object: nic.Name,
					Text: "has a network binding plugin on the pod network that does not say how to migrate: it has " +
						"no migration in spec.configuration.network.binding of the KubeVirt resource",
				},
			}}
		}
	}
	return nil
}

// cpuObstacles finds a CPU that is the node's own, and NUMA nodes that are. A CPU that is emulated is the same
// everywhere, whatever its model.
func cpuObstacles(vmi *v1.VirtualMachineInstance, emulated bool) []obstacle {
	if cpu := vmi.Spec.Domain.CPU; cpu != nil && cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil {
		return []obstacle{{
			v1.VirtualMachineInstanceReasonNotMigratable,
			field("domain.cpu.numa.guestMappingPassthrough", "shows the guest the NUMA nodes of this very node"),
		}}
	}
	if cpu := vmi.Spec.Domain.CPU; emulated || cpu == nil || cpu.Model != v1.CPUModeHostPassthrough {
		return nil
	}
	return []obstacle{{
		v1.VirtualMachineInstanceReasonCPUModeNotMigratable,
		field("domain.cpu.model",
			"host-passthrough is the CPU of this very node; host-model or a named model can migrate"),
	}}
}

// clockObstacles finds a guest that relies on a time stamp counter which ticks as often everywhere, where nobody has
// said how often.
func clockObstacles(vmi *v1.VirtualMachineInstance, emulated bool) []obstacle {
	if hints := vmi.Status.TopologyHints; emulated || hints != nil && hints.TSCFrequency != nil {
		return nil
	}
	found, needs := migrations.NeedsTSC(&vmi.Spec.Domain)
	if !needs {
		return nil
	}
	found.Text += "relies on a time stamp counter that ticks as often on each node, and no node had said how often " +
		"when the guest was started (label " + names.LabelTSCFrequency + ")"
	return []obstacle{{v1.VirtualMachineInstanceReasonNoTSCFrequencyMigratable, found}}
}

// hypervObstacles finds hypervPassthrough: the Hyper-V features of the node's own KVM. Emulated guests have none.
func hypervObstacles(vmi *v1.VirtualMachineInstance, emulated bool) []obstacle {
	f := vmi.Spec.Domain.Features
	if emulated || f == nil || f.HypervPassthrough == nil ||
		f.HypervPassthrough.Enabled != nil && !*f.HypervPassthrough.Enabled {
		return nil
	}
	return []obstacle{{
		v1.VirtualMachineInstanceReasonHypervPassthroughNotMigratable,
		field("domain.features.hypervPassthrough",
			"is what this very node has of Hyper-V; the features of hyperv, each by its name, can migrate"),
	}}
}

// deviceObstacles finds devices that are the node's own.
func deviceObstacles(vmi *v1.VirtualMachineInstance) []obstacle {
	devices := &vmi.Spec.Domain.Devices
	var found []obstacle
	if len(devices.HostDevices) > 0 || len(devices.GPUs) > 0 {
		found = append(found, obstacle{
			v1.VirtualMachineInstanceReasonHostDeviceNotMigratable,
			field("domain.devices.gpus", "and hostDevices are devices of this very node"),
		})
	}
	for _, nic := range devices.Interfaces {
		if nic.SRIOV != nil && nic.State != v1.InterfaceStateAbsent {
			found = append(found, obstacle{
				v1.VirtualMachineInstanceReasonHostDeviceNotMigratable,
				migrations.Obstacle{
					Kind: migrations.Interface, Object: nic.Name,
					Text: "(sriov) is a function of this very node's network card; bridge can migrate",
				},
			})
		}
	}
	return found
}

// encryptionObstacles finds memory that only the processor of this node can read.
func encryptionObstacles(vmi *v1.VirtualMachineInstance) []obstacle {
	if !passthrough.SEV(&vmi.Spec.Domain) {
		return nil
	}
	return []obstacle{{
		v1.VirtualMachineInstanceReasonSEVNotMigratable,
		field("domain.launchSecurity.sev", "has the guest's memory encrypted with a key that this very node keeps"),
	}}
}

// placementObstacles finds a VMI that may run on the node only on which its guest is. One that was tied to another
// node while the guest ran can move, to that node. What the pod is tied to is this node, whose label may be another
// word than its name.
func placementObstacles(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) []obstacle {
	path, node := tie(vmi.Spec.NodeSelector, vmi.Spec.Affinity)
	if path == "" {
		return nil
	}
	if pod != nil && node != vmi.Status.NodeName {
		if _, here := tie(pod.Spec.NodeSelector, pod.Spec.Affinity); here != node {
			return nil
		}
	}
	return []obstacle{{
		v1.VirtualMachineInstanceReasonNotMigratable,
		field(path, "ties the VirtualMachineInstance to node "+node),
	}}
}

// tie returns the field by which a pod may run on one node only, and that node; empty when it may run on others.
func tie(selector map[string]string, affinity *corev1.Affinity) (field, node string) {
	if node, ok := selector[corev1.LabelHostname]; ok {
		return "nodeSelector", node
	}
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return "", ""
	}
	nodes := map[string]bool{}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		only := ""
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			if (r.Key == corev1.LabelHostname || r.Key == "metadata.name") && r.Operator == corev1.NodeSelectorOpIn &&
				len(r.Values) == 1 {
				only = r.Values[0]
			}
		}
		nodes[only] = true
	}
	if len(nodes) == 1 && !nodes[""] {
		for node := range nodes {
			return "affinity.nodeAffinity", node
		}
	}
	return "", ""
}

// migrationMethod returns whether disks have to be copied when the guest moves: those that live in the pod have to.
func migrationMethod(vmi *v1.VirtualMachineInstance) v1.VirtualMachineInstanceMigrationMethod {
	for _, v := range vmi.Spec.Volumes {
		if filesystems.Of(&vmi.Spec, v.Name) != nil {
			continue
		}
		if claims.Of(&v) == nil && v.HostDisk == nil || v.Ephemeral != nil {
			return v1.BlockMigration
		}
	}
	if len(diskObstacles(vmi)) > 0 || len(volumemigration.Moves(vmi)) > 0 {
		return v1.BlockMigration
	}
	return v1.LiveMigration
}
