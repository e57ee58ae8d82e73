package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// migration reports whether the guest could move now, with all reasons why not at once.
func (e *explanation) migration() *Migration {
	vmi := e.VMI
	if !life.Alive(vmi) {
		return nil
	}
	m := &Migration{Obstacles: []Cause{}}
	add := func(layer Layer, object, reason, message string, fixes ...string) {
		m.Obstacles = append(m.Obstacles,
			Cause{Layer: layer, Object: object, Reason: reason, Message: message, State: Broken, Fixes: fixes})
	}
	if vmi.Status.Phase != v1.Running {
		add(LayerVMI, e.vmiObject(), "NotRunning", "the guest does not run", "virtctl why "+e.Name+e.flag())
	}
	if vmi.DeletionTimestamp != nil {
		add(LayerVMI, e.vmiObject(), "Stopping", "the guest is being stopped")
	}
	withDisks := volumemigration.Bring(vmi).Helps()
	for _, refused := range volumemigration.Refusals(vmi) {
		if refused.Reason == volumemigration.ReasonWaiting {
			add(LayerVolumes, e.vmiObject(), refused.Reason, copiesFirst+refused.Message, e.otherClaims()...)
			continue
		}
		for _, o := range migrations.ParseObstacles(refused.Message) {
			fixes := obstacleFixes(o)
			if o.Kind == migrations.Claim && withDisks {
				fixes = slices.Insert(fixes, 0, "virtctl migrate "+e.Name+e.flag()+" --with-disks")
			}
			if o.Kind == migrations.Claim && hotplug.Names(&vmi.Spec)[o.Object] {
				fixes = append(fixes, "unplug it: virtctl removevolume "+e.Name+e.flag()+" --volume-name "+o.Object)
			}
			add(LayerVMI, e.vmiObject(), obstacleReason(o, refused.Reason), o.String(), fixes...)
		}
	}
	e.endingClaims(add)
	e.migrationUnderWay(add)
	e.nodesElsewhere(add)
	m.Possible = len(m.Obstacles) == 0
	return m
}

// endingClaims adds the guest's claims that are being deleted: no pod that uses one is scheduled any more.
func (e *explanation) endingClaims(add obstacle) {
	for i := range e.VMI.Spec.Volumes {
		volume := &e.VMI.Spec.Volumes[i]
		claim := e.Claims[ClaimName(volume)]
		if claim == nil || claims.Status(claim) != claims.Terminating {
			continue
		}
		add(LayerVolumes, "pvc/"+claim.Name, reasonTerminating, fmt.Sprintf(
			"volume %q: claim %s is being deleted, so that no node can take a target pod with it", volume.Name,
			claim.Name),
			"virtctl removevolume "+e.Name+e.flag()+" --volume-name "+volume.Name+
				" (once its data is copied; it is lost then)")
	}
}

// nodesElsewhere adds why no other node takes the guest, by what `migrate --plan` says of each.
func (e *explanation) nodesElsewhere(add obstacle) {
	if e.Nodes == nil || !e.readable("nodes") {
		return
	}
	cordoned := 0
	var misfits []string
	for i := range e.Nodes {
		node := &e.Nodes[i]
		switch {
		case node.Name == e.VMI.Status.NodeName:
		case life.TakesNewVMs(node):
			reasons := migrate.Misfits(e.VMI, node, nil)
			if len(reasons) == 0 {
				return
			}
			misfits = append(misfits, "not "+node.Name+": "+strings.Join(reasons, ", "))
		case life.TakesVMs(node):
			cordoned++
		}
	}
	switch {
	case len(misfits) > 0:
		more := ""
		if left := len(misfits) - mostMisfits; left > 0 {
			misfits, more = misfits[:mostMisfits], fmt.Sprintf("; and %d more nodes", left)
		}
		add(LayerNode, "nodes", "NoNodeFits", "no other node fits it: "+strings.Join(misfits, "; ")+more,
			"virtctl migrate "+e.Name+e.flag()+" --plan (all nodes)",
			"change spec.template.spec.nodeSelector, affinity or tolerations of the VM")
	case cordoned > 0:
		add(LayerNode, "nodes", "Cordoned",
			fmt.Sprintf("all other nodes that could take it are cordoned (%d)", cordoned), "kubectl uncordon NODE")
	default:
		add(LayerNode, "nodes", "NoOtherNode", "there is no other node that takes VMs",
			"add a node; `virtctl doctor` says what keeps the present ones from it")
	}
}

// mostMisfits is how many nodes are named that do not fit.
const mostMisfits = 3

// obstacle notes one.
type obstacle func(layer Layer, object, reason, message string, fixes ...string)

func (e *explanation) migrationUnderWay(add obstacle) {
	for i := range e.Migrations {
		migration := &e.Migrations[i]
		if migration.IsFinal() || migration.DeletionTimestamp != nil {
			continue
		}
		add(LayerVMI, "vmim/"+migration.Name, "Migrating",
			fmt.Sprintf("a migration is under way: %s, phase %s", migration.Name, migrate.Stage(migration)),
			"kubectl wait vmim/"+migration.Name+e.flag()+" --for=jsonpath={.status.phase}=Succeeded",
			"virtctl migrate-cancel "+e.Name+e.flag())
		unschedulable := func(what string, pods []corev1.Pod) {
			if pod := waited(migration, pods); pod != nil {
				c := conditions.Find(pod.Status.Conditions, corev1.PodScheduled)
				reason, text, fixes := e.schedulerSays(pod, c.Message)
				add(LayerPod, "pod/"+pod.Name, reason,
					what+" of migration "+migration.Name+" is unschedulable: "+text, fixes...)
			}
		}
		unschedulable("the target pod", e.Pods)
		unschedulable("the pod that holds the plugged-in volumes at the target", e.Attachments)
	}
}

// waited returns the pod that a migration waits for because no node can take it; nil when there is none. It is found by
// its label: the VMI's status does not record a target pod without a node, and this one is only reported.
func waited(migration *v1.VirtualMachineInstanceMigration, pods []corev1.Pod) *corev1.Pod {
	for i := range pods {
		pod := &pods[i]
		c := conditions.Find(pod.Status.Conditions, corev1.PodScheduled)
		if pod.Labels[v1.MigrationJobLabel] == string(migration.UID) && migration.UID != "" && c != nil &&
			c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return pod
		}
	}
	return nil
}

// obstacleReason returns the reason of one obstacle of several; first is the condition's reason, which is that of the
// first obstacle.
func obstacleReason(o migrations.Obstacle, first string) string {
	switch {
	case o.Kind == migrations.Claim, o.Kind == migrations.HostDisk, o.Kind == migrations.State:
		return v1.VirtualMachineInstanceReasonDisksNotMigratable
	case o.Kind == migrations.Interface:
		return v1.VirtualMachineInstanceReasonInterfaceNotMigratable
	case o.Kind != migrations.Field:
	case o.Object == "domain.cpu.model":
		return v1.VirtualMachineInstanceReasonCPUModeNotMigratable
	case o.Object == "nodeSelector", o.Object == "affinity.nodeAffinity":
		return "TiedToNode"
	}
	return first
}

func obstacleFixes(o migrations.Obstacle) []string {
	switch {
	case o.Kind == migrations.State:
		return []string{"set spec.configuration.vmStateStorageClass of the KubeVirt resource to storage that has " +
			"ReadWriteMany; claims that are there stay as they are"}
	case o.Kind == migrations.Claim,
		o.Kind == migrations.Unknown && strings.Contains(o.Text, "ReadWriteMany"): // as KubeVirt says it
		return []string{"give the claim accessModes: [ReadWriteMany], on storage that has it"}
	case o.Kind == migrations.Interface:
		return []string{"use masquerade instead of bridge, or set annotation " +
			v1.AllowPodBridgeNetworkLiveMigrationAnnotation + " if the network can move addresses"}
	case o.Kind != migrations.Field:
	case o.Object == "domain.cpu.model":
		return []string{"set spec.template.spec.domain.cpu.model to host-model or a named model"}
	case o.Object == "nodeSelector":
		return []string{"remove kubernetes.io/hostname from spec.template.spec.nodeSelector"}
	case o.Object == "affinity.nodeAffinity":
		return []string{"let spec.template.spec.affinity.nodeAffinity allow several nodes"}
	}
	return nil
}
