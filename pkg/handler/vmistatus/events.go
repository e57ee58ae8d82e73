package vmistatus

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Event is something that happened to a VMI, for those who watch it with kubectl.
type Event struct {
	Type, Reason, Message string
}

// Reasons of events that kubevirt.io/api has no constant for.
const (
	EventPaused   = "Paused"
	EventUnpaused = "Unpaused"
)

// Events returns the events between two statuses of a VMI.
func Events(old, next v1.VirtualMachineInstanceStatus) []Event {
	var out []Event
	normal := func(reason, message string) { out = append(out, Event{corev1.EventTypeNormal, reason, message}) }
	warning := func(reason, message string) { out = append(out, Event{corev1.EventTypeWarning, reason, message}) }

	before, after := synchronized(old.Conditions), synchronized(next.Conditions)
	if after != "" && after != before && next.Phase != v1.Succeeded {
		warning(string(v1.SyncFailed), after)
	}
	if old.Phase != next.Phase {
		switch next.Phase {
		case v1.Running:
			if old.Phase != v1.Unknown {
				normal(string(v1.Created), "VirtualMachineInstance defined.")
				normal(string(v1.Started), "VirtualMachineInstance started.")
			}
		case v1.Succeeded:
			normal(string(v1.Stopped), "The VirtualMachineInstance was shut down.")
		case v1.Failed:
			if next.Reason == ReasonGuestPanicked {
				warning(ReasonGuestPanicked, message(next.Conditions, v1.VirtualMachineInstanceReady))
			}
			if next.Reason == ReasonGuestCrashed || next.Reason == ReasonLauncherGone || old.Phase == v1.Running {
				warning(string(v1.Stopped), "The VirtualMachineInstance failed: "+
					message(next.Conditions, v1.VirtualMachineInstanceReady))
			}
		}
	}
	out = append(out, migrationEvents(old.MigrationState, next.MigrationState)...)
	out = append(out, volumeEvents(old.VolumeStatus, next.VolumeStatus)...)
	if next.Phase == v1.Running {
		was, is := has(old.Conditions, v1.VirtualMachineInstancePaused),
			has(next.Conditions, v1.VirtualMachineInstancePaused)
		switch {
		case is && !was:
			normal(EventPaused, message(next.Conditions, v1.VirtualMachineInstancePaused))
		case was && !is:
			normal(EventUnpaused, "The guest runs again.")
		}
		out = append(out, credentialEvents(old.Conditions, next.Conditions)...)
	}
	return out
}

// synchronized returns the message of a failed synchronization, or "" when there is none.
func synchronized(list []v1.VirtualMachineInstanceCondition) string {
	for _, c := range list {
		if c.Type == v1.VirtualMachineInstanceSynchronized && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func has(list []v1.VirtualMachineInstanceCondition, kind v1.VirtualMachineInstanceConditionType) bool {
	for _, c := range list {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func message(list []v1.VirtualMachineInstanceCondition, kind v1.VirtualMachineInstanceConditionType) string {
	for _, c := range list {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}
