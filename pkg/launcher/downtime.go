package launcher

import (
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// QEMU stops a guest as soon as it expects to copy the rest of its memory within a limit, and a guest that changes
// little gets there while much of its memory is still to be copied for the first time. So the limit is short at first,
// and grows for guests that change their memory faster than that.
const (
	firstDowntime = 10 * time.Millisecond
	// nextDowntime is the limit once all memory has been copied.
	nextDowntime = 50 * time.Millisecond
	// lastDowntime is QEMU's own default.
	lastDowntime = 300 * time.Millisecond
)

// downtime is the limit of one migration.
type downtime struct {
	limit time.Duration
	// passes is how often memory had been gone through when the limit was set.
	passes uint64
}

// raise takes an account of the migration and reports whether the limit has grown: all memory has been copied once, and
// gone through again since the limit was set.
func (d *downtime) raise(account hypervisor.Progress) bool {
	if account.Iteration < 2 || account.Iteration <= d.passes || d.limit >= lastDowntime {
		return false
	}
	d.limit, d.passes = min(max(2*d.limit, nextDowntime), lastDowntime), account.Iteration
	return true
}
