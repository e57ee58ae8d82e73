package launcher

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/virtkit/virtkit/pkg/launcher/tpmstate"
)

// The state of a guest that has come is reported once all of it is on the claim: that of the TPM when it was copied,
// the EFI variables when the guest has run, which is when QEMU writes them. Until then the claim that it came from
// counts.
func TestStateSaved(t *testing.T) {
	for name, c := range map[string]struct {
		tpm, efi, paused bool
		want             bool
	}{
		"nothing is kept": {},
		"TPM":             {tpm: true, want: true},
		"TPM, paused":     {tpm: true, paused: true, want: true},
		"EFI":             {efi: true, want: true},
		"EFI, paused":     {efi: true, paused: true},
		"both, paused":    {tpm: true, efi: true, paused: true},
		"both":            {tpm: true, efi: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			withGuest(t, func(t *testing.T, m *memory, g *guest) {
				kept := keptState{efi: c.efi}
				if c.tpm {
					kept.tpm = &tpmstate.Store{
						Claim: filepath.Join(dir, "claim"), Local: filepath.Join(dir, "local"), Owner: "me",
					}
					if err := kept.tpm.Expect(); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(kept.tpm.Local, tpmstate.File),
						[]byte("sealed"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				k := &stateSync{guest: g, log: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				expectGuest(t, m, g, here)
				taken := make(chan struct{})
				switch {
				case c.tpm:
					go k.take(ctx, *kept.tpm, taken, func(err error) { t.Error(err) })
				case c.efi:
					close(taken)
				}
				if c.tpm || c.efi {
					go k.reportSaved(ctx, kept, taken)
				}
				if err := g.takeOver(t.Context(), c.paused); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := g.snapshot().StateSaved; got != c.want {
					t.Errorf("reported: %t", got)
				}
				if c.tpm {
					if text, err := os.ReadFile(filepath.Join(kept.tpm.Claim, tpmstate.File)); err != nil ||
						string(text) != "sealed" {
						t.Errorf("on the claim: %q, %v", text, err)
					}
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
