package certs

import (
	"crypto/x509"
	"testing"
	"time"
)

var (
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaves = map[string]Leaf{
		"api":     {CommonName: "api", DNSNames: []string{"virt-api.kubevirt.svc"}},
		"handler": {CommonName: "handler", DNSNames: []string{"virt-handler.kubevirt.svc"}},
	}
)

func mustRotate(t *testing.T, state State, now time.Time) (State, time.Time) {
	t.Helper()
	next, again, err := Rotate(state, leaves, DefaultPolicy(), now)
	if err != nil {
		t.Fatal(err)
	}
	return next, again
}

// verify holds that every leaf of one state is accepted by a peer that only knows the authorities
// of another.
func verify(t *testing.T, leaves, peer State, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	for _, certificate := range peer.Trusted {
		roots.AddCert(certificate)
	}
	for name, leaf := range leaves.Leaves {
		_, err := leaf.Certificate.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: now, DNSName: leaf.Certificate.DNSNames[0],
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			t.Errorf("%s at %s: %v", name, now, err)
		}
	}
}

func TestRotateFresh(t *testing.T) {
	state, again := mustRotate(t, State{}, start)
	if state.Signer == nil || state.Next != nil || len(state.Trusted) != 1 || len(state.Leaves) != 2 {
		t.Fatalf("fresh state: %+v", state)
	}
	verify(t, state, state, start)
	if want := start.Add(24 * 24 * time.Hour); !again.Equal(want) {
		t.Errorf("look again at %s, want %s", again, want)
	}
}

func TestRotateNothingDue(t *testing.T) {
	state, _ := mustRotate(t, State{}, start)
	same, _ := mustRotate(t, state, start.Add(23*24*time.Hour))
	if same.Signer != state.Signer || len(same.Trusted) != 1 {
		t.Error("the authority changed though nothing was due")
	}
	for name := range state.Leaves {
		if !same.Leaves[name].Certificate.Equal(state.Leaves[name].Certificate) {
			t.Errorf("%s was renewed though it was not due", name)
		}
	}
}

// TestRotateForYears walks three years from one due time to the next and holds the promise of
// Rotate: two peers one step apart always accept each other.
func TestRotateForYears(t *testing.T) {
	before, now := mustRotate(t, State{}, start)
	signers := map[string]bool{}
	for steps := 0; now.Before(start.Add(3 * 365 * 24 * time.Hour)); steps++ {
		if steps > 200 {
			t.Fatal("too many steps: something is renewed again and again")
		}
		after, again := mustRotate(t, before, now)
		verify(t, before, after, now)
		verify(t, after, before, now)
		verify(t, after, after, now)
		if len(after.Trusted) > 3 {
			t.Fatalf("%d authorities trusted at %s", len(after.Trusted), now)
		}
		if !again.After(now) {
			t.Fatalf("due again at once at %s", now)
		}
		signers[after.Signer.Certificate.SerialNumber.String()] = true
		before, now = after, again
	}
	if len(signers) < 4 {
		t.Errorf("%d signers in three years, want at least 4", len(signers))
	}
}

func TestRotateRepairs(t *testing.T) {
	state, _ := mustRotate(t, State{}, start)

	t.Run("lost authority", func(t *testing.T) {
		lost := state
		lost.Signer = nil
		repaired, _ := mustRotate(t, lost, start)
		if len(repaired.Trusted) != 2 {
			t.Fatalf("%d authorities trusted, want the lost and the new one", len(repaired.Trusted))
		}
		verify(t, state, repaired, start)
		verify(t, repaired, repaired, start)
	})
	t.Run("asleep for two years", func(t *testing.T) {
		now := start.Add(2 * 365 * 24 * time.Hour)
		repaired, _ := mustRotate(t, state, now)
		verify(t, repaired, repaired, now)
		if len(repaired.Trusted) != 1 {
			t.Errorf("%d authorities trusted, want the new one only", len(repaired.Trusted))
		}
	})
	t.Run("other names wanted", func(t *testing.T) {
		wanted := map[string]Leaf{"api": {CommonName: "api", DNSNames: []string{"other.svc"}}}
		repaired, _, err := Rotate(state, wanted, DefaultPolicy(), start)
		if err != nil {
			t.Fatal(err)
		}
		if got := repaired.Leaves["api"].Certificate.DNSNames[0]; got != "other.svc" {
			t.Errorf("DNS name %q", got)
		}
	})
}

func TestParsePair(t *testing.T) {
	state, _ := mustRotate(t, State{}, start)
	key, err := state.Signer.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParsePair(state.Signer.CertificatePEM(), key)
	if err != nil || !got.Certificate.Equal(state.Signer.Certificate) {
		t.Fatalf("round trip: %v", err)
	}
	otherKey, err := state.Leaves["api"].KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][2][]byte{
		"foreign key":    {state.Signer.CertificatePEM(), otherKey},
		"no key":         {state.Signer.CertificatePEM(), nil},
		"no certificate": {nil, key},
		"garbage":        {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), key},
	} {
		if _, err := ParsePair(data[0], data[1]); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
