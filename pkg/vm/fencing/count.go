package fencing

import "time"

// Member has the fields of a Set's node that a poll has read. The zero value is a node that does not exist or says
// nothing.
type Member struct {
	// Version is the resource version of its Node.
	Version uint64
	// Taken is the version that its last acknowledged heartbeat was answered with, as its latest heartbeat says.
	Taken uint64
}

// Poll has the answers that virt-controller got between Asked and Answered, which are of one clock that also runs while
// the host sleeps.
type Poll struct {
	Asked, Answered time.Duration
	// Beat changes with each heartbeat that the API server takes.
	Beat string
	// Paused says that the node's launchers do not count, because its virt-handler was stopped in order.
	Paused bool
	// Set is the set that the node publishes, Members what was read of its members.
	Set     Set
	Members map[string]Member
}

// Count is for how long a node has been silent while the majority of its Set was against it. The zero value has counted
// nothing. It must not be used by several goroutines at once.
type Count struct {
	// polled says that there was a poll, the last one sent at asked; counting that the count has begun, at since.
	polled, counting bool
	asked, since     time.Duration
	beat             string
	set              string
	members          map[string]*history
}

// history holds what the polls have shown of a member.
type history struct {
	reads []read
	// acknowledged is a time after which it had a heartbeat acknowledged; proven says that there is one.
	acknowledged time.Duration
	proven       bool
}

// read is a resource version that was current at some time after asked.
type read struct {
	asked   time.Duration
	version uint64
}

// Observe takes a poll and returns for how long at least the node has been silent, for launchers with
// --fence-after=after, which must be the same in all calls. Polls must be passed in the order in which they were sent.
func (c *Count) Observe(after time.Duration, p Poll) time.Duration {
	healthy := 0
	members := map[string]*history{}
	for _, name := range p.Set {
		h := c.members[name]
		if h == nil {
			h = &history{}
		}
		members[name] = h
		if h.healthy(p, p.Members[name], HealthyWithin(after)) {
			healthy++
		}
	}
	c.members = members
	set := p.Set.String()
	late := !c.polled || p.Answered-c.asked > PollWithin(after)
	c.polled, c.asked = true, p.Asked
	if p.Paused || !p.Set.carried(healthy) {
		c.counting = false
		return 0
	}
	if !c.counting || late || p.Beat != c.beat || set != c.set {
		c.counting, c.since, c.beat, c.set = true, p.Answered, p.Beat, set
	}
	return max(0, p.Asked-c.since)
}

// Fail notes that a poll failed: the count starts anew.
func (c *Count) Fail() { c.counting = false }

// healthy adds what a poll has read, and reports whether the member had a heartbeat acknowledged within so long before
// the poll was answered.
func (h *history) healthy(p Poll, m Member, within time.Duration) bool {
	old := 0
	for old < len(h.reads) && p.Answered-h.reads[old].asked > within {
		old++
	}
	h.reads = append(h.reads[:0], h.reads[old:]...)
	// One that is newer than the Node itself is from before an etcd was restored, and proves nothing.
	if m.Taken > 0 && m.Taken <= m.Version {
		for _, r := range h.reads {
			if r.version < m.Taken && (!h.proven || r.asked > h.acknowledged) {
				h.acknowledged, h.proven = r.asked, true
			}
		}
	}
	if m.Version > 0 {
		h.reads = append(h.reads, read{asked: p.Asked, version: m.Version})
	}
	return h.proven && p.Answered-h.acknowledged <= within
}
