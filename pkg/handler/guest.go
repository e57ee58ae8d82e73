package handler

import (
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// isFinal reports whether a launcher has no guest any more.
func isFinal(guest *launcherpb.GuestState) bool {
	switch guest.GetLifecycle() {
	case launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, launcherpb.Lifecycle_LIFECYCLE_CRASHED,
		launcherpb.Lifecycle_LIFECYCLE_DESTROYED, launcherpb.Lifecycle_LIFECYCLE_MIGRATED:
		return true
	}
	return false
}

// moved reports whether the guest runs on in another launcher.
func moved(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_MIGRATED
}

// awaitsStart reports whether a guest has arrived and does not run yet.
func awaitsStart(guest *launcherpb.GuestState) bool {
	return guest.GetArrived() && guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_NONE
}

// handing reports whether a guest stands still here because the launcher that it moves to was asked to start it and has
// not said yet that it runs.
func handing(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_PAUSED && guest.GetReason() == names.ReasonHandoff
}
