// Package fencing has the rule by which guests of a lost node end and start elsewhere, never both at once. virt-handler
// and virt-controller follow it without communicating; T is --fence-after of a guest's launcher, which ends the guest T
// after the time that virt-handler has last passed to it.
//
// Each node publishes a Set: its own name and those of some other nodes, in an annotation. virt-handler passes to
// launchers
//
//   - the time before it sent a heartbeat that the API server has taken, or
//   - the time w before it asked the nodes of its Set, if more than half of the Set, itself included, had no heartbeat
//     acknowledged for F = 5/8 T. Nobody can fence the node then.
//
// virt-controller counts how long a node has been silent, and believes its launchers dead after T and a bit (Needed).
// It polls the API server. The count starts anew when the node's heartbeat changed, when a poll failed or came more
// than P = T/16 after the one before, and when fewer than half of the node's Set were healthy. A member is healthy if
// it had a heartbeat acknowledged within the last G = 7/16 T: each heartbeat names the resource version of the node
// that the one before was acknowledged with. When a poll that was sent at q finds the member's Node at an older
// version, that acknowledgement came after q. A heartbeat that the API server took without the node hearing of it
// proves nothing, since the member would say that it is silent.
//
// Why this is safe. Suppose virt-controller counts through the polls [a, b], and a launcher lives on a time that lies
// after the first answer a. No heartbeat does that, since the annotation is the same at a and b; so it was a peer
// check that began at w > a. Let p be the last poll answered before w: the next one is answered within P of p, so w < p
// + P. At p half of the Set was healthy, and in the check more than half was silent. So one member was both: it had a
// heartbeat acknowledged at h >= p - G, and said less than Q after w, the time limit of a question, that this was F ago
// or more. With clocks that differ by a hundredth, 0.99 F <= w + 1.01 Q - h < G + P + 1.01 Q. But 0.99 F is 0.619 T,
// and the right side is at most 0.564 T. So every time that the launcher has lies before a was answered, and at a +
// Needed(T) the guest is dead.
//
// Both sides use the Set that is published: virt-controller reads it with the heartbeat, and a change starts the count
// anew. virt-handler changes it on condition of the Node's resource version, and needs a majority of the old and of the
// new one until it knows which holds. A member that was deleted still counts, as not healthy. T may differ between the
// launchers of a node: each is passed the time that its own T allows, and virt-controller counts for each T apart.
//
// A Set of fewer than three nodes has no majority to ask. virt-handler renews its launchers at all times then, and
// virt-controller never counts.
package fencing

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

const (
	// MinNodes is the smallest Set that has a majority worth asking; MaxNodes bounds the questions.
	MinNodes, MaxNodes = 3, 11
	// KillTime is the time in which a launcher notices that its time is over, and the kernel ends its QEMU.
	KillTime = 10 * time.Second
	// askMost bounds AskWithin: virt-handlers that have not answered by then do not.
	askMost = 5 * time.Second
)

// HeartbeatPeriod returns how often the nodes of a Set need a heartbeat, for launchers with --fence-after=after.
func HeartbeatPeriod(after time.Duration) time.Duration { return max(time.Second, after/8) }

// SilentFor returns F: how long a node must have been without an acknowledged heartbeat before its peers are asked.
func SilentFor(after time.Duration) time.Duration { return after * 5 / 8 }

// HealthyWithin returns G: how long after an acknowledged heartbeat virt-controller takes a node for healthy.
func HealthyWithin(after time.Duration) time.Duration { return after * 7 / 16 }

// PollWithin returns P: the longest gap between virt-controller's polls.
func PollWithin(after time.Duration) time.Duration { return after / 16 }

// AskWithin returns Q: the time limit of a peer check.
func AskWithin(after time.Duration) time.Duration { return min(after/16, askMost) }

// AskEvery returns the pause between peer checks.
func AskEvery(after time.Duration) time.Duration { return max(time.Second, after/32) }

// Needed returns how long a node must have been silent for a launcher's guest to be dead: a hundredth more than the
// launcher waits, since no two clocks run at the same rate, and KillTime. It is zero for a launcher that ends nothing.
func Needed(after time.Duration) time.Duration {
	if after <= 0 {
		return 0
	}
	return after + after/100 + KillTime
}

// Set is the nodes whose majority decides about one of them: sorted names, that node's included.
type Set []string

// ParseSet reads what String wrote. One that is larger than Choose makes is none: virt-controller asks for each of its
// nodes.
func ParseSet(text string) Set {
	names := strings.SplitN(text, ",", MaxNodes+1)
	if len(names) > MaxNodes {
		return nil
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	return Set(names)
}

// String returns the annotation's value.
func (s Set) String() string { return strings.Join(s, ",") }

// Quorum reports whether the Set has a majority worth asking.
func (s Set) Quorum() bool { return len(s) >= MinNodes }

// Silence returns the longest time for which more than half of the Set has been silent. silent has the answers by node;
// a node that did not answer is not in it.
func (s Set) Silence(silent map[string]time.Duration) time.Duration {
	var known []time.Duration
	for _, name := range s {
		if d, answered := silent[name]; answered {
			known = append(known, d)
		}
	}
	more := len(s)/2 + 1
	if len(known) < more {
		return 0
	}
	slices.SortFunc(known, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return max(0, known[more-1])
}

// carried reports whether so many healthy nodes let virt-controller count: no majority of the Set can be silent then.
func (s Set) carried(healthy int) bool { return s.Quorum() && 2*healthy >= len(s) }

// Choose makes the Set of a node from the names of all nodes: itself, and the others that rendezvous hashing puts
// first, so that sets are spread over the cluster and change little when nodes come and go.
func Choose(self string, all []string) Set {
	rank := func(name string) uint64 {
		sum := sha256.Sum256([]byte(self + "\x00" + name))
		return binary.BigEndian.Uint64(sum[:])
	}
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == self || name == "" })
	slices.Sort(others)
	others = slices.Compact(others)
	slices.SortStableFunc(others, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	out := append(Set{self}, others[:min(len(others), MaxNodes-1)]...)
	slices.Sort(out)
	return out
}
