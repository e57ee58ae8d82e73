package names

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// MaxLabel is the most that a label's value, a host name and other DNS labels may have, bytes.
const MaxLabel = 63

// Shorten returns a name that is made of name and has at most most bytes, 10 or more: name itself, or its beginning and
// a hash of it, so that two names do not become one. Where name is a DNS subdomain, so is the result.
func Shorten(name string, most int) string {
	if len(name) <= most {
		return name
	}
	const hash = 8
	return strings.TrimRight(name[:most-hash-1], "-.") + "-" + Hash(name, hash)
}

// Hash returns the first characters, up to 52, of a hash of text that may stand in the name of an object: the same text
// gives the same ones, in each version of every component, so that an object is not made twice.
func Hash(text string, characters int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:characters]
}

// LabelValue returns name as the value of a label, which may have MaxLabel bytes: Shorten keeps it unique.
func LabelValue(name string) string { return Shorten(name, MaxLabel) }

// Host returns the host name of a guest: spec.hostname of its VMI, or else the name of the VMI up to the first dot, or
// as much of that as a host name may have.
func Host(hostname, vmi string) string {
	if hostname != "" {
		return hostname
	}
	host, _, _ := strings.Cut(vmi, ".")
	return strings.TrimRight(host[:min(len(host), MaxLabel)], "-")
}
