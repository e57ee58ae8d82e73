package netpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The first and the last port.
const (
	First = 1
	Last  = 65535
)

// Range holds the ports from First to Last, both included.
type Range struct{ First, Last int32 }

// Ports is a set of ports of one protocol: ranges in order that do not touch. Nil is the empty set.
type Ports []Range

// All returns every port.
func All() Ports { return Ports{{First, Last}} }

// One returns the set of one port.
func One(port int32) Ports { return Ports{{port, port}} }

// Union returns the ports that are in p, in q or in both.
func (p Ports) Union(q Ports) Ports {
	ranges := slices.Concat(p, q)
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var out Ports
	for _, r := range ranges {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Intersect returns the ports that are in both.
func (p Ports) Intersect(q Ports) Ports {
	var out Ports
	for _, a := range p {
		for _, b := range q {
			if r := (Range{max(a.First, b.First), min(a.Last, b.Last)}); r.First <= r.Last {
				out = append(out, r)
			}
		}
	}
	return out
}

// Contains reports whether every port of q is in p.
func (p Ports) Contains(q Ports) bool { return slices.Equal(p.Intersect(q), q) }

// String returns "all", "none", or ports and ranges as in "22,8000-8080".
func (p Ports) String() string {
	switch {
	case len(p) == 0:
		return "none"
	case slices.Equal(p, All()):
		return "all"
	}
	words := make([]string, len(p))
	for i, r := range p {
		words[i] = fmt.Sprint(r.First)
		if r.Last > r.First {
			words[i] = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
	}
	return strings.Join(words, ",")
}
