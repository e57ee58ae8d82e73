package life

import (
	"time"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// DefaultGrace is the time to shut down of a guest whose spec sets none; KubeVirt's.
	DefaultGrace = time.Duration(v1.DefaultGracePeriodSeconds) * time.Second
	// GraceSlack is the time that the launcher gets to end in addition to the guest's: it powers the guest off and
	// reports the end.
	GraceSlack = 15 * time.Second
)

// Grace returns how long the guest has to shut down.
func Grace(vmi *v1.VirtualMachineInstance) time.Duration {
	if s := vmi.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return DefaultGrace
}
