package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/tpmstate"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// stateSync keeps the state of the guest's TPM on the claim, if it is to outlive the guest, and reports when all that
// is to outlive it is there.
type stateSync struct {
	guest *guest
	// claim is the mount point of the claim in the pod, local libvirt's directory of a guest's TPM, by firmware UUID.
	claim string
	local func(uuid string) string
	owner string
	log   *slog.Logger
	// kept has what is to be kept, once.
	kept chan keptState
}

// keptState is the state of a guest that is to outlive it.
type keptState struct {
	// tpm is nil where the TPM's state is not kept.
	tpm *tpmstate.Store
	// efi: QEMU keeps the EFI variables on the claim. Those of a guest that comes from elsewhere it writes when the
	// guest runs for the first time.
	efi bool
}

func newStateSync(o Options, g *guest) *stateSync {
	config := newDaemon(o, nil).configHome()
	return &stateSync{
		guest: g, claim: o.VMState, owner: randomUUID(), log: o.Log, kept: make(chan keptState, 1),
		local: func(uuid string) string { return vmstate.TPMDir(filepath.Join(config, "libvirt/qemu"), uuid) },
	}
}

func (k *stateSync) of(vmi *v1.VirtualMachineInstance) keptState {
	kept := keptState{efi: vmstate.EFI(&vmi.Spec)}
	if vmstate.TPM(&vmi.Spec) {
		uuid := domain.UUID(vmi)
		kept.tpm = &tpmstate.Store{
			Claim: vmstate.TPMDir(k.claim, uuid), Former: vmstate.TPMDirs(k.claim),
			Local: k.local(uuid), Owner: k.owner,
		}
	}
	return kept
}

// restore prepares a guest's start.
func (k *stateSync) restore(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	kept := k.of(vmi)
	if kept.tpm != nil {
		if err := kept.tpm.Restore(ctx); err != nil {
			return fmt.Errorf("restore the TPM's state: %w", err)
		}
	}
	k.set(kept)
	return nil
}

// expect prepares for a guest of a migration.
func (k *stateSync) expect(vmi *v1.VirtualMachineInstance) error {
	kept := k.of(vmi)
	if kept.tpm != nil {
		if err := kept.tpm.Expect(); err != nil {
			return fmt.Errorf("make room for the TPM's state: %w", err)
		}
	}
	k.set(kept)
	return nil
}

// set sets what is to be kept, unless that was done.
func (k *stateSync) set(kept keptState) {
	select {
	case k.kept <- kept:
	default:
	}
}

// run keeps the state until ctx ends, and then once more.
func (k *stateSync) run(ctx context.Context) {
	var kept keptState
	select {
	case kept = <-k.kept:
		k.kept <- kept // what is there is not set again
	case <-ctx.Done():
		return
	}
	if kept.tpm == nil && !kept.efi || !k.guest.awaitStart(ctx) {
		return
	}
	taken := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { k.reportSaved(ctx, kept, taken) })
	defer reporting.Wait()
	if kept.tpm == nil {
		close(taken)
		return
	}
	k.keepTPM(ctx, *kept.tpm, taken)
}

// keepTPM keeps the TPM's state; taken is closed once it is on the claim.
func (k *stateSync) keepTPM(ctx context.Context, s tpmstate.Store, taken chan<- struct{}) {
	failed := func(err error) { k.log.Warn("the TPM's state is not on the claim yet", "err", err) }
	taking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.take(taking, s, taken, failed)
	}()
	if err := s.Follow(ctx, failed); err != nil {
		k.log.Error("the TPM's state is not followed; it is kept when the guest ends", "err", err)
		<-ctx.Done()
	}
	stop()
	<-done
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := s.Save(last); err != nil {
		failed(err)
	}
}

// take makes the state ours: that of a received guest, and that of one which did not leave after all.
func (k *stateSync) take(ctx context.Context, s tpmstate.Store, taken chan<- struct{}, failed func(error)) {
	for ours, first := false, true; ; {
		state, changed := k.guest.watch()
		var again <-chan time.Time
		if isLeaving(state) {
			ours = false
		} else if !ours {
			err := s.Take(ctx)
			switch ours = err == nil; {
			case ours && first:
				close(taken)
				first = false
			case !ours && ctx.Err() == nil:
				failed(err)
				again = time.After(takeAgain)
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// takeAgain is the pause after an attempt to take the TPM's state that failed.
const takeAgain = time.Second

// isLeaving reports whether the guest is on its way to another launcher, or there.
func isLeaving(state *pb.GuestState) bool {
	phase := state.Migration.GetPhase()
	return phase == pb.MigrationPhase_MIGRATION_PHASE_RUNNING || phase == pb.MigrationPhase_MIGRATION_PHASE_COMPLETED
}

// reportSaved records in the guest's state that all that is kept is on the claim, once that is so.
func (k *stateSync) reportSaved(ctx context.Context, kept keptState, taken <-chan struct{}) {
	select {
	case <-taken:
	case <-ctx.Done():
		return
	}
	for {
		state, changed := k.guest.watch()
		if !kept.efi || state.Lifecycle == pb.Lifecycle_LIFECYCLE_RUNNING {
			k.guest.update(func(s *pb.GuestState) { s.StateSaved = true })
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// nvram returns the file of a guest's EFI variables: on the claim, if they are to outlive it.
func (s *service) nvram(vmi *v1.VirtualMachineInstance) (string, error) {
	if !vmstate.EFI(&vmi.Spec) {
		return filepath.Join(s.options.RunDir, "nvram.fd"), nil
	}
	file := vmstate.NVRAM(s.options.VMState, identity.Name(vmi))
	if err := os.MkdirAll(filepath.Dir(file), 0o770); err != nil {
		return "", fmt.Errorf("make room for the EFI variables: %w", err)
	}
	return file, nil
}
