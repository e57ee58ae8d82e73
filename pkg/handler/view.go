package handler

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// View holds what a pass over one VMI decides on.
type View struct {
	Key types.NamespacedName
	Now time.Time
	// Here is this node, and where it takes guests of other nodes.
	Here vmistatus.Target
	// VMI is nil when it does not exist, or none of the node's caches has it.
	VMI *v1.VirtualMachineInstance
	// Pod is the VMI's launcher pod on this node, nil when there is none.
	Pod *corev1.Pod
	// Session is nil when no launcher of the VMI is followed.
	Session *Following
	// MayRun: a process of one of the VMI's pods may be left on this node. Known when there is no Pod and the launcher
	// does not answer.
	MayRun bool
	// Other is the pod on a migration's other node, as the API server has it; nil when it is gone. Known when otherPod
	// names one.
	Other *corev1.Pod
	// Elsewhere: the API server says that the VMI runs on another node. Known when the session is unsettled.
	Elsewhere bool
}

// Following is a session as a pass found it.
type Following struct {
	// VMI and Pod are the UIDs of the VMI and pod whose launcher is followed.
	VMI, Pod types.UID
	Seen     observation
	// StopBy is the latest time at which the guest is powered off; zero when it was not asked to stop.
	StopBy time.Time
	// Reported holds what was reported of the progress of its migration.
	Reported reported
}

// owned reports whether this node is responsible for the VMI's status.
func (v View) owned() bool { return v.VMI != nil && v.VMI.Status.NodeName == v.Here.Node }

// expected reports whether the VMI is on another node and may come to this one.
func (v View) expected() bool {
	return v.VMI != nil && !v.owned() && v.VMI.Labels[v1.MigrationTargetNodeNameLabel] == v.Here.Node
}

// scheduled reports whether an owned VMI's guest is this node's to start and to follow.
func (v View) scheduled() bool {
	return slices.Contains([]v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running, v1.Unknown}, v.VMI.Status.Phase)
}

// incoming reports whether an expected VMI's migration goes on.
func (v View) incoming() bool {
	ms := v.VMI.Status.MigrationState
	return !v.VMI.IsFinal() && ms != nil && ms.TargetNode == v.Here.Node && !migrations.Over(ms)
}

// following returns the session of the VMI's launcher; nil when there is none, or when it follows another launcher.
func (v View) following() *Following {
	s := v.Session
	if s == nil || s.VMI != v.VMI.UID || v.Pod != nil && s.Pod != v.Pod.UID {
		return nil
	}
	return s
}

// seen returns what the session of the VMI's launcher knows; nothing when there is none.
func (v View) seen() observation {
	if s := v.following(); s != nil {
		return s.Seen
	}
	return observation{}
}

// silent reports whether the VMI's launcher does not answer, or has not yet.
func (v View) silent() bool {
	seen := v.seen()
	return seen.Guest == nil || !seen.LostAt.IsZero()
}

// movedAway reports whether the guest of an owned VMI runs on in another launcher, by what its launcher here said.
func (v View) movedAway() bool {
	guest := v.seen().Guest
	return moved(guest) || guest == nil && v.Pod != nil && vmistatus.Moved(v.Pod)
}

// inHandoff reports whether the guest of an owned VMI stands still, as another launcher may have started it.
func (v View) inHandoff() bool { return v.Pod != nil && handing(v.seen().Guest) }

// patience returns how long to wait for the source's word before an incoming guest is started without it; it is not
// positive when that time is over.
func (v View) patience() time.Duration { return takeOverPatience - v.Now.Sub(v.seen().ReceivedAt) }

// otherPod names the pod on the migration's other node that the pass depends on; empty for none.
func (v View) otherPod() string {
	ms := v.VMI.Status.MigrationState
	switch {
	case ms == nil:
	case v.owned() && (v.movedAway() || v.inHandoff()):
		return ms.TargetPod
	case v.expected() && v.Pod != nil && v.Pod.Name == ms.TargetPod && received(v.seen().Guest) && v.patience() <= 0:
		return ms.SourcePod
	}
	return ""
}

// released returns the status of an expected VMI without this node's pods, once the guest has begun to move; nil when
// it has none of them. The VMI's end waits for that: the guest may be there.
func (v View) released() *v1.VirtualMachineInstanceStatus {
	if v.VMI.Status.MigrationState.StartTimestamp == nil {
		return nil
	}
	next := v.VMI.Status.DeepCopy()
	maps.DeleteFunc(next.ActivePods, func(_ types.UID, node string) bool { return node == v.Here.Node })
	if len(next.ActivePods) == len(v.VMI.Status.ActivePods) {
		return nil
	}
	return next
}

// leaving reports whether the guest of the session moves to another node and its launcher has not let it go.
func (s *Following) leaving() bool {
	phase := s.Seen.Guest.GetMigration().GetPhase()
	return s.Seen.LostAt.IsZero() && !s.Seen.Guest.GetLifecycle().Final() &&
		phase == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
}

// unsettled reports whether a guest may still run here during its migration or after it.
func (s *Following) unsettled() bool {
	return s.Seen.Guest.GetMigration() != nil && s.Seen.LostAt.IsZero() && !s.Seen.Guest.GetLifecycle().Final() &&
		(!s.leaving() || handing(s.Seen.Guest))
}
