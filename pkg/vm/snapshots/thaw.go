package snapshots

import "time"

// A frozen guest is thawed by the first of three that can: virt-controller, whose freeze it is; virt-handler on the
// guest's node; the guest's launcher, when the longest time for which the guest may be frozen is over. Each comes a
// little earlier than the next one, so that a guest is thawed once, and is never frozen for longer.

// ControllerEarly and HandlerEarly are how long before the launcher virt-controller and virt-handler thaw a guest, if
// it may be frozen for long: of less time they leave a part.
const (
	ControllerEarly = 2 * time.Second
	HandlerEarly    = 500 * time.Millisecond

	controllerPart = 5
	handlerPart    = 20
)

// ControllerThaws returns when virt-controller thaws a guest that may be frozen for most, from the freeze on.
func ControllerThaws(most time.Duration) time.Duration {
	return most - min(most/controllerPart, ControllerEarly)
}

// HandlerThaws returns when virt-handler thaws a guest that may be frozen for most, from the freeze on.
func HandlerThaws(most time.Duration) time.Duration {
	return most - min(most/handlerPart, HandlerEarly)
}

// MostFrozen returns for how long a guest may be frozen that virt-controller thaws so much later: it is the inverse of
// ControllerThaws.
func MostFrozen(thaws time.Duration) time.Duration {
	return thaws + min(thaws/(controllerPart-1), ControllerEarly)
}
