package store

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

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
	case string(v1.Failed):
		return Bad
	}
	if slices.Contains(life.Broken(), v1.VirtualMachinePrintableStatus(status)) {
		return Bad
	}
	return Busy
}
