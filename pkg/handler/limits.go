package handler

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const (
	// parallelConnections is over how many connections memory is copied besides the first, where that is possible: one
	// alone is bound by one processor's TLS on either side.
	parallelConnections = 4
	// parallelFrom is the memory, bytes, of guests for which that pays. A smaller one is copied in a second or two, and
	// stands still longer with several connections, which all have to be empty before it goes on.
	parallelFrom = 2 << 30
)

// limits bound a migration; comparable, as a part of outgoing.
type limits struct {
	bandwidth              uint64 // bytes a second
	perGiB, progress       time.Duration
	autoConverge, postCopy bool
	disruption, unsafe     bool
	connections            uint32
}

// limitsOf reads them from what the controller has written for the migration.
func limitsOf(vmi *v1.VirtualMachineInstance) limits {
	c := surface.Migrations(vmi.Status.MigrationState.MigrationConfiguration)
	l := limits{
		perGiB:   surface.MigrationTime(*c.CompletionTimeoutPerGiB),
		progress: surface.MigrationTime(*c.ProgressTimeout),
		// virtiofsd cannot wait for memory
		autoConverge: *c.AllowAutoConverge, postCopy: *c.AllowPostCopy && !filesystems.Any(&vmi.Spec.Domain),
		disruption: *c.AllowWorkloadDisruption, unsafe: *c.UnsafeMigrationOverride,
	}
	if n := c.BandwidthPerMigration.Value(); n > 0 {
		l.bandwidth = uint64(n)
	}
	// Threads that copy would take the time of a pod whose processors are limited from the guest; and QEMU before 10.1
	// has either several connections or post-copy.
	// And with several it does not keep to a bandwidth: what each has in hand is on top of it.
	memory := sizing.Current(vmi)
	_, bounded := vmi.Spec.Domain.Resources.Limits[corev1.ResourceCPU]
	if !l.postCopy && !bounded && l.bandwidth == 0 && memory.Value() >= parallelFrom {
		l.connections = parallelConnections
	}
	return l
}

// message returns the limits as the launcher gets them.
func (l limits) message() *launcherpb.MigrationLimits {
	return &launcherpb.MigrationLimits{
		Bandwidth:               l.bandwidth,
		CompletionTimeoutPerGib: durationpb.New(l.perGiB), ProgressTimeout: durationpb.New(l.progress),
		AutoConverge: l.autoConverge, PostCopy: l.postCopy, WorkloadDisruption: l.disruption, Unsafe: l.unsafe,
		Connections: l.connections,
	}
}

// readyForPostCopy gives the launcher that a guest is to come to by post-copy what that takes.
func (s *session) readyForPostCopy(vmi *v1.VirtualMachineInstance, process *podfs.Process) {
	if vmi.Status.NodeName == s.node.Name || vmi.Status.MigrationState == nil || !limitsOf(vmi).postCopy {
		return
	}
	if err := process.EnsureUserfault(s.node.Rights); err != nil {
		s.log.Warn("the guest cannot come by post-copy", "err", err) // as the migration's failure will say
	}
}
