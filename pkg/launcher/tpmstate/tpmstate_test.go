package tpmstate

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func store(t *testing.T, claim, owner string) Store {
	t.Helper()
	return Store{Claim: claim, Local: filepath.Join(t.TempDir(), "swtpm", "tpm2"), Owner: owner}
}

// swtpm writes a state as swtpm does.
func swtpm(t *testing.T, s Store, state string) {
	t.Helper()
	temporary := filepath.Join(s.Local, "TMP2-00.permall")
	if err := os.WriteFile(temporary, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(s.Local, File)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, dir, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s has %q, want %q", dir, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A clone has another firmware UUID, and the state of the VM that it was cloned from: the newest, once.
func TestClone(t *testing.T) {
	claim, ctx := t.TempDir(), t.Context()
	of := func(uuid string) Store {
		s := store(t, filepath.Join(claim, "swtpm", uuid, "tpm2"), uuid)
		s.Former = filepath.Join(claim, "swtpm", "*", "tpm2")
		return s
	}
	source := of("a")
	must(t, source.Restore(ctx))
	expect(t, source.Local, "")
	swtpm(t, source, "sealed")
	must(t, source.Save(ctx))

	clone := of("b")
	must(t, clone.Restore(ctx))
	expect(t, clone.Local, "sealed")
	swtpm(t, clone, "more")
	must(t, clone.Save(ctx))
	expect(t, clone.Claim, "more")
	expect(t, source.Claim, "sealed")

	if err := os.Chtimes(filepath.Join(source.Claim, File), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(claim, "swtpm", "link", "tpm2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(claim, "swtpm", "link", "tpm2", File)); err != nil {
		t.Fatal(err)
	}
	again := of("c")
	must(t, again.Restore(ctx))
	expect(t, again.Local, "more")

	swtpm(t, clone, "later")
	must(t, clone.Save(ctx))
	next := of("b")
	must(t, next.Restore(ctx))
	expect(t, next.Local, "later")
}

// The state goes from pod to pod, by restart and with a guest that moves, and only the last one's counts.
func TestOwners(t *testing.T) {
	claim, ctx := filepath.Join(t.TempDir(), "claim"), t.Context()
	first, second, third := store(t, claim, "first"), store(t, claim, "second"),
		store(t, claim, "third, of a longer name")
	must(t, first.Restore(ctx))
	expect(t, first.Local, "")
	must(t, first.Save(ctx)) // nothing yet
	swtpm(t, first, "one")
	must(t, first.Save(ctx))
	expect(t, claim, "one")

	// A restart.
	must(t, second.Restore(ctx))
	expect(t, second.Local, "one")
	swtpm(t, second, "two")
	must(t, second.Save(ctx))
	swtpm(t, first, "from the dead")
	must(t, first.Save(ctx))
	expect(t, claim, "two")

	// A migration.
	must(t, third.Expect())
	swtpm(t, third, "three")
	must(t, third.Save(ctx))
	expect(t, claim, "two") // the guest is not there yet
	must(t, third.Take(ctx))
	expect(t, claim, "three")
	swtpm(t, second, "late")
	must(t, second.Save(ctx))
	expect(t, claim, "three")

	// One that only seemed to succeed: the guest is where it was.
	must(t, second.Take(ctx))
	expect(t, claim, "late")
}

func TestFollow(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := store(t, filepath.Join(t.TempDir(), "claim"), "me")
	must(t, s.Restore(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Follow(ctx, func(err error) { t.Error(err) }) }()
	for _, state := range []string{"a", "b", "c"} {
		swtpm(t, s, state)
		deadline := time.Now().Add(30 * time.Second)
		for got := ""; got != state; {
			if time.Now().After(deadline) {
				t.Fatalf("the claim has %q, want %q", got, state)
			}
			b, err := os.ReadFile(filepath.Join(s.Claim, File))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			got = string(b)
		}
	}
	cancel()
	must(t, <-done)
}

// What lies on the claim is a stranger's.
func TestNoState(t *testing.T) {
	claim := t.TempDir()
	if err := os.Symlink("/etc/hostname", filepath.Join(claim, File)); err != nil {
		t.Fatal(err)
	}
	if err := store(t, claim, "me").Restore(t.Context()); err == nil {
		t.Error("a link was followed")
	}
	must(t, os.Remove(filepath.Join(claim, File)))
	must(t, os.WriteFile(filepath.Join(claim, File), make([]byte, maxState+1), 0o600))
	if err := store(t, claim, "me").Restore(t.Context()); err == nil {
		t.Error("too large a state was taken")
	}
}
