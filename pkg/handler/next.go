package handler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/migrations"
)

const (
	// lostLimit is how long a launcher whose process has ended may stay without a final word from its
	// pod before its VMI counts as failed.
	lostLimit = 20 * time.Second
	// defaultGrace applies where admission has set no terminationGracePeriodSeconds.
	defaultGrace = 30 * time.Second
	// endPoll is the pause between two looks at the processes of a pod that was removed.
	endPoll = time.Second
	// takeOverPatience is how long the launchers have to agree by themselves on who runs the guest.
	takeOverPatience = time.Second
	// otherPoll is the pause between two looks at the other node's pod, whose events this node does not get.
	otherPoll = time.Second
)

// View is what a pass over one VMI decides on.
type View struct {
	Key types.NamespacedName
	Now time.Time
	// Here is this node, and where it takes guests of other nodes.
	Here status.Target
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
	// VMI and Pod are the UIDs of those whose launcher is followed.
	VMI, Pod types.UID
	Seen     observation
	// StopBy is when the guest is powered off at the latest; zero when it was not asked to stop.
	StopBy time.Time
	// Reported is what was reported of the progress of its migration.
	Reported reported
}

// SessionStep is what a pass does with the session of a VMI's launcher.
type SessionStep string

// The steps; the zero value leaves the session alone.
const (
	// SessionStart follows the launcher in the view's pod.
	SessionStart SessionStep = "start"
	// SessionRefresh gives the session the VMI and the pod as they are now.
	SessionRefresh SessionStep = "refresh"
)

// Decision is what a pass does, in this order.
type Decision struct {
	// Lost calls for a heartbeat: the VMI's phase says that the node is lost.
	Lost bool
	// End ends the session that the pass found, if there is one.
	End     bool
	Session SessionStep
	// StopBy asks the session for the guest's shutdown, with power-off at that time; zero does not. Announce says so in an
	// event.
	StopBy   time.Time
	Announce bool
	// Outgoing is the migration that the session is to make; nil does not change it.
	Outgoing *outgoing
	// Report is what to say of that migration's progress; nil is nothing.
	Report *report
	// TakeOver has the session start a guest that has arrived, or that goes on here; true leaves it paused.
	TakeOver *bool
	// Note is for the log.
	Note string
	// Status is to be written, and then the events are emitted; nil when the VMI has it.
	Status *v1.VirtualMachineInstanceStatus
	Events []status.Event

	frame.Requeue
}

// Next returns what a pass over a VMI does. It is pure.
func Next(v View) Decision {
	switch {
	case v.owned():
		return nextOwned(v)
	case v.expected():
		return nextExpected(v)
	}
	return nextLeft(v)
}

// owned reports whether this node is responsible for the VMI's status.
func (v View) owned() bool { return v.VMI != nil && v.VMI.Status.NodeName == v.Here.Node }

// expected reports whether the VMI is on another node and may come to this one.
func (v View) expected() bool {
	return v.VMI != nil && !v.owned() && v.VMI.Labels[v1.MigrationTargetNodeNameLabel] == v.Here.Node
}

// handedOver reports whether an owned VMI's guest is this node's to start and to follow.
func (v View) handedOver() bool {
	return slices.Contains([]v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running, v1.Unknown}, v.VMI.Status.Phase)
}

// incoming reports whether an expected VMI's migration goes on.
func (v View) incoming() bool {
	ms := v.VMI.Status.MigrationState
	return !v.VMI.IsFinal() && ms != nil && ms.TargetNode == v.Here.Node && !migrations.Over(ms)
}

// following is the session of the VMI's launcher; nil when there is none, or when it follows another launcher.
func (v View) following() *Following {
	s := v.Session
	if s == nil || s.VMI != v.VMI.UID || v.Pod != nil && s.Pod != v.Pod.UID {
		return nil
	}
	return s
}

// seen is what the session of the VMI's launcher knows; nothing when there is none.
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
	return moved(guest) || guest == nil && v.Pod != nil && status.Moved(v.Pod)
}

// inHandoff reports whether the guest of an owned VMI stands still, as another launcher may have started it.
func (v View) inHandoff() bool { return v.Pod != nil && handing(v.seen().Guest) }

// patience is how long to wait before a guest that has arrived is taken over; it is not positive when that is over.
func (v View) patience() time.Duration { return takeOverPatience - v.Now.Sub(v.seen().ArrivedAt) }

// otherPod names the pod on the migration's other node that the pass depends on; empty for none.
func (v View) otherPod() string {
	ms := v.VMI.Status.MigrationState
	switch {
	case ms == nil:
	case v.owned() && (v.movedAway() || v.inHandoff()):
		return ms.TargetPod
	case v.expected() && v.Pod != nil && v.Pod.Name == ms.TargetPod && waits(v.seen().Guest) && v.patience() <= 0:
		return ms.SourcePod
	}
	return ""
}

// nextOwned decides on a VMI that this node is responsible for.
func nextOwned(v View) Decision {
	vmi := v.VMI
	if vmi.IsFinal() {
		return Decision{End: v.Pod == nil || ended(v.Pod)}
	}
	if !v.handedOver() {
		return Decision{}
	}
	d := Decision{Lost: vmi.Status.Phase == v1.Unknown}
	var stopBy time.Time
	if vmi.DeletionTimestamp != nil {
		stopBy = deadline(vmi, v.Now)
	}
	if d.follow(v) {
		s := v.following()
		asked := s != nil && !s.StopBy.IsZero() && !stopBy.Before(s.StopBy)
		d.StopBy, d.Announce = stopBy, !stopBy.IsZero() && !asked && vmi.Status.Phase == v1.Running
		d.Outgoing = new(outgoingOf(vmi, v.Here.Node))
		d.Report = s.report(v.Now)
	}
	in, again := v.input()
	switch {
	case v.movedAway():
		again = d.awaitTarget(v, in)
	case v.inHandoff():
		again = d.awaitRunning(v, in)
	default:
		d.write(vmi, status.Next(in))
	}
	d.RequeueAfter = again
	return d
}

// follow has the launcher in the view's pod followed, in place of another one, and reports whether it is.
func (d *Decision) follow(v View) bool {
	switch {
	case v.following() != nil:
		d.Session = SessionRefresh
	case v.Pod != nil && !ended(v.Pod):
		d.End, d.Session = v.Session != nil, SessionStart
	default:
		d.End = v.Session != nil
	}
	return d.Session != ""
}

// input is what the status of an owned VMI is made of, and when to look again.
func (v View) input() (status.Input, time.Duration) {
	seen := v.seen()
	in := status.Input{
		VMI: v.VMI, Pod: v.Pod, Now: v.Now,
		Guest: seen.Guest, Plan: seen.Plan, Failure: seen.Failure, NeverStarted: seen.NeverStarted,
		Departure: seen.outgoingSeen(), Volumes: seen.Volumes, Unsized: seen.Unsized, Unlinked: seen.Unlinked,
	}
	switch {
	case v.Pod == nil && v.silent() && v.MayRun:
		return in, endPoll
	case v.Pod == nil && v.silent():
		in.Gone = "The launcher's pod was deleted."
	case v.Pod == nil:
		return in, time.Second // the launcher still speaks
	case !seen.LostAt.IsZero() && seen.Dead:
		if left := lostLimit - v.Now.Sub(seen.LostAt); left > 0 {
			return in, left
		}
		in.Gone = "The launcher's process has ended without a final word."
	}
	return in, 0
}

// awaitTarget waits until the migration's target node has written that the guest is there. It will not when the pod
// there has ended, and then the guest is lost. A pod that was removed need not have ended: virt-controller knows when.
func (d *Decision) awaitTarget(v View, in status.Input) (again time.Duration) {
	ms := v.VMI.Status.MigrationState
	if ms == nil || ms.TargetPod == "" {
		return 0
	}
	if v.Other == nil || !ended(v.Other) {
		return otherPoll
	}
	in.Lost = fmt.Sprintf("The guest had just moved to pod %s on node %s, which has ended.", ms.TargetPod, ms.TargetNode)
	d.write(v.VMI, status.Next(in))
	return 0
}

// awaitRunning waits while the launchers of a handoff ask each other. When the target has ended, its last words say
// whether it ever ran the guest. If it did not, the guest goes on here; if it may have, it wrote to the disks, and an
// older memory must not meet them: the guest is lost.
func (d *Decision) awaitRunning(v View, in status.Input) (again time.Duration) {
	again = otherPoll
	ms := v.VMI.Status.MigrationState
	switch {
	case ms == nil || ms.TargetPod == "":
	case v.Other != nil && !ended(v.Other):
	case v.Other != nil && status.NeverRan(v.Other):
		d.TakeOver = new(false)
		d.Note = "the migration's target has ended without having run the guest, which goes on here"
	case v.Other == nil && slices.Contains(slices.Collect(maps.Values(v.VMI.Status.ActivePods)), ms.TargetNode):
		// It was removed, and whether it has ended is not known.
	default:
		in.Lost = fmt.Sprintf("The guest may have run in pod %s on node %s, which has ended.", ms.TargetPod, ms.TargetNode)
		again = 0
	}
	d.write(v.VMI, status.Next(in))
	return again
}

// write has a status written, unless the VMI has it.
func (d *Decision) write(vmi *v1.VirtualMachineInstance, next v1.VirtualMachineInstanceStatus) {
	if equality.Semantic.DeepEqual(vmi.Status, next) {
		return
	}
	d.Status, d.Events = &next, status.Events(vmi.Status, next)
	if vmi.DeletionTimestamp != nil && (next.Phase == v1.Succeeded || next.Phase == v1.Failed) {
		d.Events = append(d.Events, status.Event{
			Type: corev1.EventTypeNormal, Reason: string(v1.Deleted),
			Message: "The guest of the deleted VirtualMachineInstance is gone.",
		})
	}
}

// nextExpected decides on a VMI that may come to this node: its launcher here is prepared, and once the guest runs in
// it this node takes the VMI over.
func nextExpected(v View) Decision {
	if !v.incoming() {
		return Decision{End: true}
	}
	vmi := v.VMI
	if v.Pod == nil {
		var d Decision
		switch next := v.released(); {
		case next == nil:
		case v.MayRun:
			d.RequeueAfter = endPoll
		default:
			d.write(vmi, *next)
		}
		return d
	}
	if v.Pod.Name != vmi.Status.MigrationState.TargetPod {
		return Decision{} // its event makes another pass
	}
	var d Decision
	if s := v.Session; s != nil && s.Pod != v.Pod.UID {
		d.Report = s.report(v.Now)
		if s.leaving() {
			// The guest is to come back to the node that it left. Until the launcher that it left has let it go, the
			// connections of that migration must stay: see nextLeft. The end of that makes another pass.
			return d
		}
	}
	if !d.follow(v) {
		return d
	}
	seen := v.seen()
	switch {
	case !waits(seen.Guest):
		target := v.Here
		target.Prepared = seen.Prepared
		d.write(vmi, status.Arrive(status.Input{
			VMI: vmi, Pod: v.Pod, Guest: seen.Guest, Plan: seen.Plan, Failure: seen.Failure, Now: v.Now,
		}, target))
	case v.patience() > 0:
		d.RequeueAfter = v.patience()
	default:
		// The launchers could not agree. The last words of the one that the guest came from are with the API server.
		if v.Other != nil && status.Moved(v.Other) {
			d.TakeOver = new(status.Paused(vmi))
			d.Note = "the guest's old launcher has let it go"
		}
		d.RequeueAfter = otherPoll
	}
	return d
}

// released is the status of an expected VMI without this node's pods, once the guest has begun to move; nil when it has
// none of them. The VMI's end waits for that: the guest may have arrived.
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

// nextLeft decides on the session of a VMI that is not, or no longer, this node's. While the launcher still makes the
// migration that took the guest away, its connections must stay: cut, they would bring the guest back to life here,
// beside the one that has moved. Should that have happened, the one here is ended.
func nextLeft(v View) Decision {
	s := v.Session
	if s == nil {
		return Decision{}
	}
	d := Decision{Report: s.report(v.Now)}
	switch {
	case s.leaving() && !handing(s.Seen.Guest):
		// Its end makes another pass.
	case s.unsettled() && v.Elsewhere:
		d.StopBy = v.Now
		d.Note = "the guest runs on another node and was left here, too: it is ended here"
	default:
		d.End = true
	}
	return d
}

// leaving reports whether the guest of the session moves to another node and its launcher has not let it go.
func (s *Following) leaving() bool {
	phase := s.Seen.Guest.GetMigration().GetPhase()
	return s.Seen.LostAt.IsZero() && !isFinal(s.Seen.Guest) && phase == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
}

// unsettled reports whether a guest that has moved, or was to, may run here as well.
func (s *Following) unsettled() bool {
	return s.Seen.Guest.GetMigration() != nil && s.Seen.LostAt.IsZero() && !isFinal(s.Seen.Guest) &&
		(!s.leaving() || handing(s.Seen.Guest))
}

// deadline is when the guest of a deleted VMI is powered off: a grace period after the deletion, by
// the API server's clock, which is cut to the second, but not later than one from now, by the node's.
func deadline(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	by, latest := vmi.DeletionTimestamp.Add(grace(vmi)+time.Second), now.Add(grace(vmi))
	if by.After(latest) {
		return latest
	}
	return by
}

func grace(vmi *v1.VirtualMachineInstance) time.Duration {
	if s := vmi.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultGrace
}
