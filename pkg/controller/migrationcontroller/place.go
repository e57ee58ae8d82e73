package migrationcontroller

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// findTarget takes the migration to the point where the VMI's nodes take over.
func (s *Step) findTarget(view View) {
	migration, pod := view.Migration, view.Pod
	switch {
	case migration.DeletionTimestamp != nil:
		s.abortRequested(view)
		s.fail(view, "cancelled before it began")
	case !migration.IsRunning() && pod == nil:
		s.begin(view)
	case pod == nil && view.Uncreated && refusal(view) != "":
		s.fail(view, refusal(view))
	case pod == nil && view.Uncreated && life.Running(view.VMI) &&
		view.Now.Sub(since(&s.Status, v1.MigrationScheduling)) < scheduleTimeout:
		s.CreatePod = true
	case pod == nil && view.Uncreated:
		s.fail(view, "its pod could not be created: the events of the migration say why")
	case pod == nil:
		s.fail(view, "its pod was deleted")
	case !life.PodStaying(pod):
		s.fail(view, "its pod "+pod.Name+" has ended: "+ended(pod))
	case view.VMI.DeletionTimestamp != nil:
		s.fail(view, "the VirtualMachineInstance was deleted")
	case strange(view.VMI, pod):
		s.fail(view, "the volumes of the VirtualMachineInstance were changed since its pod "+pod.Name+" was made")
	case refusal(view) != "":
		s.fail(view, refusal(view))
	case pod.Spec.NodeName == "":
		s.phase(v1.MigrationScheduling, view.Now)
		left := scheduleTimeout - view.Now.Sub(pod.CreationTimestamp.Time)
		if left <= 0 {
			s.fail(view, "no node takes its pod "+pod.Name+": "+unschedulable(pod))
			return
		}
		s.RequeueAfter = left
	default:
		s.attach(view)
	}
}

// begin lets a migration make its pod, when nothing speaks against it.
func (s *Step) begin(view View) {
	switch {
	case view.VMI.DeletionTimestamp != nil:
		s.fail(view, "the VirtualMachineInstance was deleted")
		return
	case view.VMI.Status.Phase == v1.Running:
		if message := refusal(view); message != "" && !bringing(view) {
			s.fail(view, message)
			return
		}
		if view.Wait == "" && !vmstate.Unsettled(&view.VMI.Status) {
			if !s.bring(view) {
				return
			}
			if volumemigration.Described(view.VMI) {
				s.phase(v1.MigrationScheduling, view.Now)
				s.CreatePod = true
				return
			}
		}
	}
	s.phase(v1.MigrationPending, view.Now)
	s.RequeueAfter = waitAgain
}

// refusal returns why the guest must not move, "" when nothing is known. It is asked as long as the source does not
// know where the guest should go; from then on the source asks (volumemigration.Leaving).
func refusal(view View) string {
	if !life.Running(view.VMI) {
		return "" // it is another thing that keeps it
	}
	return volumemigration.RefusalOf(view.VMI, view.Migration)
}

// strange reports a pod that was made for other claims than the VMI's spec names now: the guest would find other disks
// there. A pod that does not say so was made before there was such a thing.
func strange(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	made, known := pod.Annotations[names.AnnotationClaims]
	return (known || volumemigration.Pending(vmi)) && made != volumemigration.Fingerprint(&vmi.Spec) ||
		!volumemigration.Described(vmi)
}

// schedule writes the migration for the VMI's nodes, whose pod has a node. attachment holds the hotplugged claims
// there; nil when there are none.
func (s *Step) schedule(view View, attachment *corev1.Pod) {
	status := view.VMI.Status.DeepCopy()
	status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: view.Migration.UID,
		SourceNode:   status.NodeName,
		SourcePod:    view.SourcePod,
		TargetNode:   view.Pod.Spec.NodeName,
		TargetPod:    view.Pod.Name,

		MigrationNetworkType:   v1.Pod,
		MigrationConfiguration: surface.Configured(view.Cluster, view.Policy),
	}
	source, target := stateClaims(view.Migration, view.VMI)
	status.MigrationState.SourcePersistentStatePVCName = source
	status.MigrationState.TargetPersistentStatePVCName = target
	if view.Policy != nil {
		status.MigrationState.MigrationPolicyName = new(view.Policy.Name)
	}
	if attachment != nil {
		status.MigrationState.TargetAttachmentPodUID = attachment.UID
	}
	status.ActivePods = maps.Clone(status.ActivePods)
	if status.ActivePods == nil {
		status.ActivePods = map[types.UID]string{}
	}
	status.ActivePods[view.Pod.UID] = view.Pod.Spec.NodeName
	s.VMIStatus = status
	s.showTo = view.Pod.Spec.NodeName
	s.phase(v1.MigrationScheduled, view.Now)
	s.event(corev1.EventTypeNormal, ReasonSuccessfulHandOver,
		"Migration target pod is ready for preparation by virt-handler.")
}
