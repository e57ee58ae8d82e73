package launcher

import (
	"fmt"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	preCopy  = pb.MigrationMode_MIGRATION_MODE_PRE_COPY
	postCopy = pb.MigrationMode_MIGRATION_MODE_POST_COPY
	stopped  = pb.MigrationMode_MIGRATION_MODE_PAUSED
)

// limits bound a migration; zero times are no limits.
type limits struct {
	// perGiB bounds the time for each GiB, and progress the time in which nothing moves.
	perGiB, progress time.Duration
	// postCopy and disruption say what may be done when the time is over.
	postCopy, disruption bool
}

// pace holds what is remembered of a migration from one account to the next.
type pace struct {
	mode pb.MigrationMode
	// processed and remaining are the values of the last account, and movedAt is when they last changed.
	processed, remaining uint64
	movedAt              time.Duration
	// total is the most that there was to copy, bytes.
	total uint64
}

// verdict says what to do about a migration.
type verdict int

const (
	letGo verdict = iota
	switchToPostCopy
	standStill
	giveUp
)

// judge takes an account of a migration, elapsed after its beginning, and returns what to do; with giveUp, also why.
func (p *pace) judge(l limits, elapsed time.Duration, account hypervisor.Progress) (verdict, string) {
	if account.DataProcessed != p.processed || account.DataRemaining != p.remaining {
		p.processed, p.remaining, p.movedAt = account.DataProcessed, account.DataRemaining, elapsed
	}
	p.total = max(p.total, account.DataTotal)
	stalled := l.progress > 0 && elapsed-p.movedAt > l.progress
	if p.mode == postCopy && !stalled {
		return letGo, "" // there is no way back
	}
	over := p.allowed(l)
	switch {
	case stalled:
		return giveUp,
			fmt.Sprintf("nothing was copied for %s (progressTimeout)", (elapsed - p.movedAt).Round(time.Second))
	case over == 0 || elapsed <= over:
		return letGo, ""
	case l.disruption && l.postCopy && p.mode == preCopy:
		return switchToPostCopy, ""
	case l.disruption && p.mode == preCopy:
		return standStill, ""
	}
	return giveUp, fmt.Sprintf("it is not complete after %s (completionTimeoutPerGiB)", elapsed.Round(time.Second))
}

// allowed returns how long the migration may take, zero for ever. A guest that stands still has as long again.
func (p *pace) allowed(l limits) time.Duration {
	const giB = 1 << 30
	parts := int64((p.total + giB - 1) / giB)
	if l.perGiB <= 0 || parts <= 0 {
		return 0
	}
	if p.mode == stopped {
		parts *= 2
	}
	if int64(l.perGiB) > int64(longest)/parts {
		return longest
	}
	return time.Duration(parts * int64(l.perGiB))
}

// longest bounds what times of migrations are multiplied to.
const longest = 10 * 365 * 24 * time.Hour
