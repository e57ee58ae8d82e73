package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/tpmstate"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// tpmSync keeps the state of the guest's TPM on the claim, if it is to outlive the guest.
type tpmSync struct {
	guest *guest
	// claim is where the pod has the claim, local has libvirt's directory of a guest's TPM, by firmware UUID.
	claim string
	local func(uuid string) string
	owner string
	log   *slog.Logger
	// stores has the TPM to keep, once.
	stores chan tpmstate.Store
}

func newTPMSync(o Options, g *guest) *tpmSync {
	config := newDaemon(o, nil).configHome()
	return &tpmSync{
		guest: g, claim: o.VMState, owner: randomUUID(), log: o.Log, stores: make(chan tpmstate.Store, 1),
		local: func(uuid string) string { return vmstate.TPMDir(filepath.Join(config, "libvirt/qemu"), uuid) },
	}
}

func (k *tpmSync) store(vmi *v1.VirtualMachineInstance) tpmstate.Store {
	uuid := domain.UUID(vmi)
	return tpmstate.Store{Claim: vmstate.TPMDir(k.claim, uuid), Local: k.local(uuid), Owner: k.owner}
}

// restore prepares a guest's start.
func (k *tpmSync) restore(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	if !vmstate.TPM(&vmi.Spec) {
		return nil
	}
	s := k.store(vmi)
	if err := s.Restore(ctx); err != nil {
		return fmt.Errorf("restore the TPM's state: %w", err)
	}
	k.set(s)
	return nil
}

// expect prepares for a guest that arrives.
func (k *tpmSync) expect(vmi *v1.VirtualMachineInstance) error {
	if !vmstate.TPM(&vmi.Spec) {
		return nil
	}
	s := k.store(vmi)
	if err := s.Expect(); err != nil {
		return fmt.Errorf("make room for the TPM's state: %w", err)
	}
	k.set(s)
	return nil
}

// set sets the TPM to keep, unless that was done.
func (k *tpmSync) set(s tpmstate.Store) {
	select {
	case k.stores <- s:
	default:
	}
}

// run keeps the TPM's state until ctx ends, and then once more.
func (k *tpmSync) run(ctx context.Context) {
	var s tpmstate.Store
	select {
	case s = <-k.stores:
		k.stores <- s // what is there is not set again
	case <-ctx.Done():
		return
	}
	if !k.guest.awaitStart(ctx) {
		return
	}
	failed := func(err error) { k.log.Warn("the TPM's state is not on the claim yet", "err", err) }
	taking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.take(taking, s, failed)
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

// take makes the state ours: that of a guest which has arrived, and that of one which did not leave after all.
func (k *tpmSync) take(ctx context.Context, s tpmstate.Store, failed func(error)) {
	for ours := false; ; {
		state, changed := k.guest.watch()
		switch state.Migration.GetPhase() {
		case pb.MigrationPhase_MIGRATION_PHASE_RUNNING, pb.MigrationPhase_MIGRATION_PHASE_COMPLETED:
			ours = false
		default:
			if ours {
				break
			}
			if err := s.Take(ctx); err != nil && ctx.Err() == nil {
				failed(err)
			} else {
				ours = true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// nvram is the file of a guest's EFI variables: on the claim, if they are to outlive it.
func (s *service) nvram(vmi *v1.VirtualMachineInstance) (string, error) {
	if !vmstate.EFI(&vmi.Spec) {
		return filepath.Join(s.options.RunDir, "nvram.fd"), nil
	}
	file := vmstate.NVRAM(s.options.VMState, vmi.Name)
	if err := os.MkdirAll(filepath.Dir(file), 0o770); err != nil {
		return "", fmt.Errorf("make room for the EFI variables: %w", err)
	}
	return file, nil
}
