package netpolicy

import (
	"math/rand/v2"
	"testing"
)

// TestPorts compares the set with one that lists each of a few ports.
func TestPorts(t *testing.T) {
	const most = 12
	random := rand.New(rand.NewPCG(1, 2))
	has := func(p Ports, port int32) bool {
		return len(p.Intersect(One(port))) > 0
	}
	some := func() (Ports, [most]bool) {
		var p Ports
		var model [most]bool
		for range random.IntN(5) {
			first := random.Int32N(most)
			last := min(first+random.Int32N(4), most-1)
			p = p.Union(Ports{{first, last}})
			for i := first; i <= last; i++ {
				model[i] = true
			}
		}
		return p, model
	}
	for range 2000 {
		p, inP := some()
		q, inQ := some()
		both, either := p.Intersect(q), p.Union(q)
		contains := true
		for port := range int32(most) {
			if has(both, port) != (inP[port] && inQ[port]) || has(either, port) != (inP[port] || inQ[port]) {
				t.Fatalf("%s and %s: both are %s, either %s", p, q, both, either)
			}
			contains = contains && (inP[port] || !inQ[port])
		}
		if p.Contains(q) != contains {
			t.Fatalf("%s contains %s: %v", p, q, !contains)
		}
		for i := 1; i < len(either); i++ {
			if either[i].First <= either[i-1].Last+1 {
				t.Fatalf("%s are not apart", either)
			}
		}
	}
}

func TestPortsString(t *testing.T) {
	for want, p := range map[string]Ports{
		"none": nil, "all": All(), "22": One(22), "22,80-90": Ports{{80, 90}}.Union(One(22)),
		"1-3": One(1).Union(One(3)).Union(One(2)), "1-65534": {{1, 65534}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
