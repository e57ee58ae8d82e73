package dhcp

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
)

// Resolv has the fields of a resolv.conf that the guest needs.
type Resolv struct {
	Nameservers []netip.Addr
	Search      []string
}

// Limits of the C library, which a guest will hardly exceed: nameservers and search domains.
const (
	maxNameservers = 3
	maxSearch      = 32
)

// ParseResolv reads a resolv.conf(5). Lines it does not understand are passed over, as resolvers do.
func ParseResolv(r io.Reader) (Resolv, error) {
	var out Resolv
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			a, err := netip.ParseAddr(f[1])
			if err == nil && len(out.Nameservers) < maxNameservers {
				out.Nameservers = append(out.Nameservers, a.Unmap())
			}
		case "search", "domain":
			// The last of them counts.
			out.Search = nil
			for _, d := range f[1:] {
				if d = strings.TrimSuffix(d, "."); domainName(d) && len(out.Search) < maxSearch {
					out.Search = append(out.Search, d)
				}
			}
		}
	}
	return out, s.Err()
}

// domainName reports whether d can be written as DNS labels.
func domainName(d string) bool {
	if d == "" || len(d) > 253 {
		return false
	}
	for label := range strings.SplitSeq(d, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}
