package store

// Health is what a machine's status says: whether somebody has to look. The dashboard and `list` show it by colour.
type Health int

const (
	// Busy is on the way to something.
	Busy Health = iota
	// Well is as it should be.
	Well
	// Off does not run, and is not to.
	Off
	// Held was stopped by somebody and waits for them.
	Held
	// Bad needs somebody.
	Bad
)

// HealthOf is what a printableStatus or a phase says of a machine that is ready or not.
func HealthOf(status string, ready bool) Health {
	switch status {
	case "Running":
		if !ready {
			return Busy
		}
		return Well
	case "Stopped", "Succeeded", "Halted":
		return Off
	case "Paused":
		return Held
	case "Failed", "CrashLoopBackOff", "ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff", "ErrorPvcNotFound",
		"DataVolumeError", "Unknown":
		return Bad
	}
	return Busy
}
