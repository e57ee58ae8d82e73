package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// makeRun has the guest run: from the memory of the snapshot that its VM was restored from, if there is one, or else by
// booting. A guest that cannot be resumed is not booted instead: its disks are as after a power loss, and only its user
// knows whether that will do.
func (s *service) makeRun(
	ctx context.Context, vmi *v1.VirtualMachineInstance, xml string, known func(*pb.GuestState),
) error {
	mark, err := savedmemory.ResumeOf(vmi.Annotations)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if mark == nil {
		return s.guest.create(ctx, xml, startsPaused(vmi), known)
	}
	before, err := os.ReadFile(s.token(mark))
	switch {
	case err == nil && string(before) == string(vmi.UID):
		return status.Error(codes.InvalidArgument, "the guest has been resumed from its snapshot, and has ended")
	case err == nil:
		s.options.Log.Info("boot: the guest was resumed from its snapshot before", "vmi", string(before))
		return s.guest.create(ctx, xml, startsPaused(vmi), known)
	case !errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.FailedPrecondition, "look whether the guest has been resumed: %v", err)
	}
	err = s.guest.createBy(ctx, func(ctx context.Context, conn hypervisor.Connection) error {
		return s.resume(ctx, conn, vmi, mark)
	}, known)
	var locked *hypervisor.LockedError
	if errors.As(err, &locked) {
		return err
	}
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "cannot resume the guest from the memory in claim %s: %v; "+
			"to boot it from its disks instead, remove the VM's annotation %s and restart the VM",
			mark.Claim, err, savedmemory.ResumeAnnotation)
	}
	s.options.Log.Info("resumed the guest from its snapshot", "claim", mark.Claim)
	return nil
}

func (s *service) token(mark *savedmemory.Resume) string {
	return filepath.Join(s.options.Disks.Resume, mark.Token())
}

// resume makes the domain of the saved memory. It goes on only once it is on record that it does: its disks change from
// there on, and do not fit the memory any more.
func (s *service) resume(
	ctx context.Context, conn hypervisor.Connection, vmi *v1.VirtualMachineInstance, mark *savedmemory.Resume,
) error {
	if err := conn.Restore(ctx, filepath.Join(s.options.Disks.Resume, savedmemory.File)); err != nil {
		return err
	}
	err := record(s.token(mark), string(vmi.UID))
	if err == nil && !startsPaused(vmi) {
		err = conn.Resume(ctx)
	}
	if err != nil {
		return errors.Join(err, conn.Destroy(ctx))
	}
	return nil
}

// record writes a file that does not exist yet, to its disk.
func record(name, text string) (err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record that the guest is resumed: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return file.Sync()
}
