package store

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Health says whether somebody has to look at a machine. The dashboard and `list` show it by colour.
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

// HealthOf returns the health by a printableStatus or a phase of a machine that is ready or not.
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
