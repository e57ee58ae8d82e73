package certs

import (
	"crypto/x509"
	"maps"
	"slices"
	"time"
)

// Policy says how long certificates live and when they are renewed.
type Policy struct {
	// AuthorityLifetime and LeafLifetime are counted from the making.
	AuthorityLifetime, LeafLifetime time.Duration
	// AuthorityRenewBefore and LeafRenewBefore are how long before the end a successor is made.
	AuthorityRenewBefore, LeafRenewBefore time.Duration
	// Overlap is how long a new authority is only trusted before it signs: the time that every
	// component has to take notice of it.
	Overlap time.Duration
}

// DefaultPolicy returns what applies unless the KubeVirt resource says otherwise.
func DefaultPolicy() Policy {
	return Policy{
		AuthorityLifetime:    365 * 24 * time.Hour,
		AuthorityRenewBefore: 73 * 24 * time.Hour,
		LeafLifetime:         30 * 24 * time.Hour,
		LeafRenewBefore:      6 * 24 * time.Hour,
		Overlap:              10 * time.Minute,
	}
}

// State is every certificate of an installation. The zero State is a fresh one.
type State struct {
	// Signer is the authority that signs now; nil when there is none yet or it was unreadable.
	Signer *Pair
	// Next is the authority that is trusted already and signs when the overlap is over.
	Next *Pair
	// Trusted is every authority's certificate to trust now, the signer's and the next one's included.
	Trusted []*x509.Certificate
	// Leaves are the components' certificates by the name of what they are kept in.
	Leaves map[string]Pair
}

// Rotate returns what the state should be now for the wanted leaves, and when to look again. A
// state that needs nothing comes back equal. The order of things when an authority ends: its
// successor is made and trusted; after the overlap the successor signs and the leaves are renewed;
// the old one stays trusted until its end.
func Rotate(state State, wanted map[string]Leaf, policy Policy, now time.Time) (State, time.Time, error) {
	next := State{Signer: state.Signer, Next: state.Next, Leaves: map[string]Pair{}}

	if next.Signer != nil && !next.Signer.Certificate.NotAfter.After(now) {
		next.Signer = nil
	}
	if next.Next != nil && (next.Signer == nil || !now.Before(next.Next.madeAt().Add(policy.Overlap))) {
		next.Signer, next.Next = next.Next, nil
	}
	if next.Signer == nil {
		authority, err := NewAuthority(now, policy.AuthorityLifetime)
		if err != nil {
			return State{}, time.Time{}, err
		}
		next.Signer = &authority
	}
	if next.Next == nil && !now.Before(next.Signer.renewAt(policy.AuthorityRenewBefore)) {
		authority, err := NewAuthority(now, policy.AuthorityLifetime)
		if err != nil {
			return State{}, time.Time{}, err
		}
		next.Next = &authority
	}
	next.Trusted = trusted(next, state.Trusted, now)

	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		leaf, ok := state.Leaves[name]
		if !ok || !leaf.serves(wanted[name], *next.Signer, policy, now) {
			var err error
			if leaf, err = next.Signer.Issue(wanted[name], now, policy.LeafLifetime); err != nil {
				return State{}, time.Time{}, err
			}
		}
		next.Leaves[name] = leaf
	}
	return next, lookAgain(next, policy, now), nil
}

// trusted keeps what was trusted and has not ended, newest first, in a stable order.
func trusted(state State, before []*x509.Certificate, now time.Time) []*x509.Certificate {
	var out []*x509.Certificate
	add := func(certificate *x509.Certificate) {
		if certificate.NotAfter.After(now) && !slices.ContainsFunc(out, certificate.Equal) {
			out = append(out, certificate)
		}
	}
	if state.Next != nil {
		add(state.Next.Certificate)
	}
	add(state.Signer.Certificate)
	for _, certificate := range before {
		add(certificate)
	}
	return out
}

// serves reports whether the certificate still is what is wanted.
func (p Pair) serves(leaf Leaf, signer Pair, policy Policy, now time.Time) bool {
	return now.Before(p.renewAt(policy.LeafRenewBefore)) &&
		p.Certificate.Subject.CommonName == leaf.CommonName &&
		slices.Equal(p.Certificate.DNSNames, leaf.DNSNames) &&
		p.Certificate.CheckSignatureFrom(signer.Certificate) == nil
}

func (p Pair) madeAt() time.Time {
	return p.Certificate.NotBefore.Add(skew)
}

// renewAt returns when a successor is due: renewBefore its end, but not before half its life, lest a certificate that
// was cut short by its authority's end be renewed at once for ever.
func (p Pair) renewAt(renewBefore time.Duration) time.Time {
	half := p.madeAt().Add(p.Certificate.NotAfter.Sub(p.madeAt()) / 2)
	if at := p.Certificate.NotAfter.Add(-renewBefore); at.After(half) {
		return at
	}
	return half
}

// lookAgain returns the earliest time at which Rotate would do something.
func lookAgain(state State, policy Policy, now time.Time) time.Time {
	at := state.Signer.renewAt(policy.AuthorityRenewBefore)
	if state.Next != nil {
		at = state.Next.madeAt().Add(policy.Overlap)
	}
	for _, leaf := range state.Leaves {
		if due := leaf.renewAt(policy.LeafRenewBefore); due.Before(at) {
			at = due
		}
	}
	for _, certificate := range state.Trusted {
		if certificate.NotAfter.Before(at) {
			at = certificate.NotAfter
		}
	}
	if at.Before(now) {
		return now
	}
	return at
}
