package dhcp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseResolv(t *testing.T) {
	addrs := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for _, tc := range []struct {
		name, text string
		want       Resolv
	}{
		{"empty", "", Resolv{}},
		{
			"pod",
			"search a.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
			Resolv{addrs("10.96.0.10"), []string{"a.svc.cluster.local", "svc.cluster.local", "cluster.local"}},
		},
		{
			"comments and nonsense",
			"# x\nnameserver\nnameserver nope\n ; y\nnameserver 1.1.1.1 # z\nsearch .. ok.example. " +
				strings.Repeat("a", 64) + "\n",
			Resolv{addrs("1.1.1.1"), []string{"ok.example"}},
		},
		{"the last search counts", "domain one.example\nsearch two.example\n", Resolv{nil, []string{"two.example"}}},
		{
			"three servers", "nameserver 1.1.1.1\nnameserver 2.2.2.2\nnameserver ::ffff:3.3.3.3\nnameserver 4.4.4.4\n",
			Resolv{addrs("1.1.1.1", "2.2.2.2", "3.3.3.3"), nil},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseResolv(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{}),
				cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseResolv(f *testing.F) {
	f.Add("search a b\nnameserver 1.1.1.1\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseResolv(strings.NewReader(text))
		if err == nil && (len(r.Nameservers) > maxNameservers || len(r.Search) > maxSearch) {
			t.Errorf("%+v", r)
		}
	})
}
