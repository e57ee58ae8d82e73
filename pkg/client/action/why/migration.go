package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// migration says whether the guest could move now, with all reasons why not at once.
func (e *explanation) migration() *Migration {
	vmi := e.VMI
	if vmi == nil || vmi.IsFinal() {
		return nil
	}
	m := &Migration{Obstacles: []Cause{}}
	add := func(layer Layer, object, reason, message string, mend ...string) {
		m.Obstacles = append(m.Obstacles,
			Cause{Layer: layer, Object: object, Reason: reason, Message: message, State: Broken, Mend: mend})
	}
	if vmi.Status.Phase != v1.Running {
		add(LayerVMI, e.vmiObject(), "NotRunning", "the guest does not run", "virtctl why "+e.Name+e.flag())
	}
	if vmi.DeletionTimestamp != nil {
		add(LayerVMI, e.vmiObject(), "Stopping", "the guest is being stopped")
	}
	if c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse); c !=
		nil {
		for _, part := range obstacles(c.Message) {
			add(LayerVMI, e.vmiObject(), obstacleReason(part, c.Reason), part, obstacleMend(part)...)
		}
	}
	e.migrationUnderWay(add)
	if e.Nodes != nil && e.readable("nodes") {
		var elsewhere, cordoned int
		for i := range e.Nodes {
			node := &e.Nodes[i]
			switch {
			case node.Name == vmi.Status.NodeName:
			case schedulable(node):
				elsewhere++
			case node.Labels[v1.NodeSchedulable] == "true":
				cordoned++
			}
		}
		switch {
		case elsewhere > 0:
		case cordoned > 0:
			add(LayerNode, "nodes", "Cordoned",
				fmt.Sprintf("all other nodes that could take it are cordoned (%d)", cordoned), "kubectl uncordon NODE")
		default:
			add(LayerNode, "nodes", "NoOtherNode", "there is no other node that takes VMs",
				"add a node; virtctl doctor says what keeps the present ones from it")
		}
	}
	m.Possible = len(m.Obstacles) == 0
	return m
}

func (e *explanation) migrationUnderWay(add func(layer Layer, object, reason, message string, mend ...string)) {
	for i := range e.Migrations {
		migration := &e.Migrations[i]
		if migration.IsFinal() || migration.DeletionTimestamp != nil {
			continue
		}
		add(LayerVMI, "vmim/"+migration.Name, "Migrating",
			fmt.Sprintf("a migration is under way: %s, phase %s", migration.Name, migrate.Stage(migration)),
			"virtctl wait "+e.Name+e.flag()+" --for=condition=Ready", "virtctl migrate-cancel "+e.Name+e.flag())
	}
}

// obstacles are the sentences of the condition's message. One may have a semicolon of its own.
func obstacles(message string) []string {
	var out []string
	for part := range strings.SplitSeq(message, "; ") {
		begins := strings.HasPrefix(part, "volume ") || strings.HasPrefix(part, "interface ") ||
			strings.HasPrefix(part, "the persistent state ") || strings.HasPrefix(part, "spec.")
		if begins || len(out) == 0 {
			out = append(out, part)
			continue
		}
		out[len(out)-1] += "; " + part
	}
	return out
}

func obstacleReason(message, first string) string {
	switch {
	case strings.HasPrefix(message, "volume "), strings.HasPrefix(message, "the persistent state "):
		return v1.VirtualMachineInstanceReasonDisksNotMigratable
	case strings.HasPrefix(message, "interface "):
		return v1.VirtualMachineInstanceReasonInterfaceNotMigratable
	case strings.HasPrefix(message, "spec.domain.cpu.model "):
		return v1.VirtualMachineInstanceReasonCPUModeNotMigratable
	case strings.Contains(message, " ties the "):
		return "TiedToNode"
	}
	return first
}

func obstacleMend(message string) []string {
	switch {
	case strings.HasPrefix(message, "the persistent state "):
		return []string{"set spec.configuration.vmStateStorageClass of the KubeVirt resource to storage that has " +
			"ReadWriteMany; claims that are there stay as they are"}
	case strings.Contains(message, "ReadWriteMany"):
		return []string{"give the claim accessModes: [ReadWriteMany], on storage that has it"}
	case strings.HasPrefix(message, "interface "):
		return []string{"use masquerade instead of bridge, or set annotation " +
			v1.AllowPodBridgeNetworkLiveMigrationAnnotation + " if the network can move addresses"}
	case strings.HasPrefix(message, "spec.domain.cpu.model "):
		return []string{"set spec.template.spec.domain.cpu.model to host-model or a named model"}
	case strings.Contains(message, "nodeSelector"):
		return []string{"remove kubernetes.io/hostname from spec.template.spec.nodeSelector"}
	case strings.Contains(message, "nodeAffinity"):
		return []string{"let spec.template.spec.affinity.nodeAffinity allow several nodes"}
	}
	return nil
}
