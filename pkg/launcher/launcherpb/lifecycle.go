package launcherpb

// Final reports whether a launcher whose guest is in this state has no guest any more: it ended, or runs on in another
// launcher.
func (x Lifecycle) Final() bool {
	switch x {
	case Lifecycle_LIFECYCLE_SHUTOFF, Lifecycle_LIFECYCLE_CRASHED, Lifecycle_LIFECYCLE_DESTROYED,
		Lifecycle_LIFECYCLE_MIGRATED:
		return true
	}
	return false
}
