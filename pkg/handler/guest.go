package handler

import (
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// moved reports whether the guest runs on in another launcher.
func moved(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_MIGRATED
}

// received reports whether a guest has come here by a migration and does not run yet.
func received(guest *launcherpb.GuestState) bool {
	return guest.GetArrived() && guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_NONE
}

// handing reports whether a guest stands still here because the launcher that it moves to was asked to start it and has
// not said yet that it runs.
func handing(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_PAUSED && guest.GetReason() == names.ReasonHandoff
}
