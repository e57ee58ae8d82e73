package handler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

const (
	// lostLimit is the time that a launcher whose process has ended may stay without a final word from its pod before
	// its VMI counts as failed.
	lostLimit = 20 * time.Second
	// endPoll is the pause between two looks at the processes of a pod that was removed.
	endPoll = time.Second
	// takeOverPatience is the time that the launchers have to agree by themselves on who runs the guest.
	takeOverPatience = time.Second
	// otherPoll is the pause between two looks at the other node's pod, whose events this node does not get.
	otherPoll = time.Second
)

// SessionStep names what a pass does with the session of a VMI's launcher.
type SessionStep string

// The steps; the zero value leaves the session alone.
const (
	// SessionStart follows the launcher in the view's pod.
	SessionStart SessionStep = "start"
	// SessionRefresh gives the session the VMI and the pod as they are now.
	SessionRefresh SessionStep = "refresh"
)

// Decision holds what a pass does, in this order.
type Decision struct {
	// Lost calls for a heartbeat: the VMI's phase says that the node is lost.
	Lost bool
	// End ends the session that the pass found, if there is one.
	End     bool
	Session SessionStep
	// StopBy asks the session for the guest's shutdown, with power-off at that time; zero does not. Announce says so in
	// an event.
	StopBy   time.Time
	Announce bool
	// Outgoing is the migration that the session is to make; nil does not change it.
	Outgoing *outgoing
	// TakeOver has the session start a guest that was received, or resume one here; true leaves it paused.
	TakeOver *bool
	// Note is for the log.
	Note string
	// Report holds what to report on the progress of the found session's migration; nil means nothing.
	Report *report
	// Status is to be written, and then the events are emitted; nil when the VMI has it.
	Status *v1.VirtualMachineInstanceStatus
	Events []vmistatus.Event

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

// nextOwned decides on a VMI that this node is responsible for.
func nextOwned(v View) Decision {
	vmi := v.VMI
	if vmi.IsFinal() {
		return Decision{End: v.Pod == nil || life.PodEnded(v.Pod)}
	}
	if !v.scheduled() {
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
		d.write(vmi, vmistatus.Next(in))
	}
	d.RequeueAfter = again
	return d
}

// follow has the launcher in the view's pod followed, in place of another one, and reports whether it is.
func (d *Decision) follow(v View) bool {
	switch {
	case v.following() != nil:
		d.Session = SessionRefresh
	case v.Pod != nil && !life.PodEnded(v.Pod):
		d.End, d.Session = v.Session != nil, SessionStart
	default:
		d.End = v.Session != nil
	}
	return d.Session != ""
}

// input returns the input of an owned VMI's status, and when to look again.
func (v View) input() (vmistatus.Input, time.Duration) {
	seen := v.seen()
	in := vmistatus.Input{
		VMI: v.VMI, Pod: v.Pod, Now: v.Now,
		Guest: seen.Guest, Plan: seen.Plan, Failure: seen.Failure, NeverStarted: seen.NeverStarted,
		Outgoing: seen.outgoingSeen(), Volumes: seen.Volumes, Unsized: seen.Unsized, Unlinked: seen.Unlinked,
		Unrated: seen.Unrated, Unpoliced: seen.Unpoliced, Growth: seen.Growth,
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
func (d *Decision) awaitTarget(v View, in vmistatus.Input) (again time.Duration) {
	ms := v.VMI.Status.MigrationState
	if ms == nil || ms.TargetPod == "" {
		return 0
	}
	if v.Other == nil || !life.PodEnded(v.Other) {
		return otherPoll
	}
	in.Lost = fmt.Sprintf("The guest had just moved to pod %s on node %s, which has ended.", ms.TargetPod,
		ms.TargetNode)
	in.StateMoved = termination.Of(v.Other).StateSaved
	d.write(v.VMI, vmistatus.Next(in))
	return 0
}

// awaitRunning waits while the launchers of a handoff ask each other. When the target has ended, its termination
// message says whether it ever ran the guest. If it did not, the guest goes on here; if it may have, it wrote to the
// disks, and an older memory must not meet them: the guest is lost.
func (d *Decision) awaitRunning(v View, in vmistatus.Input) (again time.Duration) {
	again = otherPoll
	ms := v.VMI.Status.MigrationState
	switch {
	case ms == nil || ms.TargetPod == "":
	case v.Other != nil && !life.PodEnded(v.Other):
	case v.Other != nil && vmistatus.NeverRan(v.Other):
		d.TakeOver = new(false)
		d.Note = "the migration's target has ended without having run the guest, which goes on here"
	case v.Other == nil && slices.Contains(slices.Collect(maps.Values(v.VMI.Status.ActivePods)), ms.TargetNode):
		// It was removed, and whether it has ended is not known.
	default:
		in.StateMoved = v.Other != nil && termination.Of(v.Other).StateSaved
		in.Lost = fmt.Sprintf("The guest may have run in pod %s on node %s, which has ended.", ms.TargetPod,
			ms.TargetNode)
		again = 0
	}
	d.write(v.VMI, vmistatus.Next(in))
	return again
}

// write has a status written, unless the VMI has it.
func (d *Decision) write(vmi *v1.VirtualMachineInstance, next v1.VirtualMachineInstanceStatus) {
	if equality.Semantic.DeepEqual(vmi.Status, next) {
		return
	}
	d.Status, d.Events = &next, vmistatus.Events(vmi.Status, next)
	if vmi.DeletionTimestamp != nil && (next.Phase == v1.Succeeded || next.Phase == v1.Failed) {
		d.Events = append(d.Events, vmistatus.Event{
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
	case !received(seen.Guest):
		target := v.Here
		target.Prepared = seen.Prepared
		d.write(vmi, vmistatus.AtTarget(vmistatus.Input{
			VMI: vmi, Pod: v.Pod, Guest: seen.Guest, Plan: seen.Plan, Failure: seen.Failure, Now: v.Now,
		}, target))
	case v.patience() > 0:
		d.RequeueAfter = v.patience()
	default:
		// The launchers could not agree. The termination message of the one that the guest came from is with the API
		// server.
		if v.Other != nil && vmistatus.Moved(v.Other) {
			d.TakeOver = new(vmistatus.Paused(vmi))
			d.Note = "the guest's old launcher has let it go"
		}
		d.RequeueAfter = otherPoll
	}
	return d
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

// deadline returns when the guest of a deleted VMI is powered off: a grace period after the deletion, by the API
// server's clock, which is cut to the second, but not later than one from now, by the node's.
func deadline(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	grace := life.Grace(vmi)
	by, latest := vmi.DeletionTimestamp.Add(grace+time.Second), now.Add(grace)
	if by.After(latest) {
		return latest
	}
	return by
}
