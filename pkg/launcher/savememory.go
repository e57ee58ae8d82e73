package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// saving is a save of the guest's memory for a snapshot, under way or over.
type saving struct {
	volume, file string
	began        time.Time
	// pause is the pause in which it was begun: the guest's disks fit the memory as long as that one lasts.
	pause int
	// done is closed when it is over. What follows is written before.
	done  chan struct{}
	ended time.Time
	size  int64
	err   error
}

func (s *saving) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// answer returns the report on a save for virt-handler.
func (s *saving) answer() *pb.SavedMemory {
	out := &pb.SavedMemory{Began: timestamppb.New(s.began)}
	if s.over() {
		out.Ended, out.Size = timestamppb.New(s.ended), s.size
		if s.err != nil {
			out.Failure = s.err.Error()
		}
	}
	return out
}

// freezeWithMemory pauses the guest and has its memory saved. Its time counts from began on. s.freezer.mu is held.
func (s *service) freezeWithMemory(
	ctx context.Context, req *pb.FreezeRequest, began time.Duration,
) (*pb.FreezeResponse, error) {
	volume := req.MemoryVolume
	if !req.PauseWithoutAgent || filepath.Base(volume) != volume {
		return nil, status.Errorf(codes.InvalidArgument,
			"memory_volume: %q is not a name, or the guest must not be paused", volume)
	}
	directory := filepath.Join(s.options.Disks.Hotplug, volume)
	if _, err := os.Stat(directory); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the claim for the guest's memory is not here yet: %v", err)
	}
	if s.guest.snapshot().GetLifecycle() == pb.Lifecycle_LIFECYCLE_PAUSED && !s.guest.isHeld() {
		return nil, status.Error(codes.FailedPrecondition, "the guest is paused; unpause it first")
	}
	s.freezer.limit(s.life, began, req.UnfreezeAfter.AsDuration())
	answer, err := s.pauseFrozen(ctx)
	if err != nil {
		return nil, err
	}
	if answer.Quiesced != pb.Quiesced_QUIESCED_PAUSED {
		return nil, status.Error(codes.FailedPrecondition, "the guest is paused; unpause it first")
	}
	save, err := s.freezer.save(volume, filepath.Join(directory, savedmemory.File))
	if err != nil {
		return nil, err
	}
	answer.Memory = save.answer()
	return answer, nil
}

// save begins a save of the memory of a guest that stands still, or returns the one of this pause.
func (f *freezer) save(volume, file string) (*saving, error) {
	pause := f.guest.pause()
	f.saves.Lock()
	defer f.saves.Unlock()
	if s := f.saving; s != nil {
		if s.volume == volume && s.pause == pause {
			return s, nil
		}
		if !s.over() {
			return nil, status.Error(codes.FailedPrecondition,
				"the guest's memory is still being written for another snapshot")
		}
	}
	s := &saving{volume: volume, file: file, began: time.Now(), pause: pause, done: make(chan struct{})}
	select {
	case f.queue <- s:
	default:
		return nil, status.Error(codes.FailedPrecondition, "another save of the guest's memory is about to begin")
	}
	f.saving = s
	return s, nil
}

// forgetMemory fails while the guest's memory is being written to a volume.
func (f *freezer) forgetMemory(volume string) error {
	f.saves.Lock()
	defer f.saves.Unlock()
	if s := f.saving; s != nil && s.volume == volume && !s.over() {
		return status.Error(codes.FailedPrecondition, "the guest's memory is still being written to the volume")
	}
	return nil
}

// runSaves makes the saves, until ctx ends.
func (f *freezer) runSaves(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-f.queue:
			s.size, s.err = f.write(ctx, s)
			s.ended = time.Now()
			if s.err != nil {
				f.log.Warn("cannot save the guest's memory", "volume", s.volume, "err", s.err)
			} else {
				f.log.Info("saved the guest's memory", "volume", s.volume, "took", s.ended.Sub(s.began))
			}
			close(s.done)
		}
	}
}

// write makes one save, all of it or nothing, and returns its size.
func (f *freezer) write(ctx context.Context, s *saving) (int64, error) {
	if !f.guest.isHeld() || f.guest.pause() != s.pause {
		return 0, errGoneOn
	}
	conn, err := f.guest.connection(ctx)
	if err != nil {
		return 0, err
	}
	if err := hasRoom(ctx, conn, filepath.Dir(s.file), 0); err != nil {
		return 0, err
	}
	size, err := int64(0), conn.SaveMemory(ctx, s.file)
	if err == nil {
		size, err = flush(s.file)
	}
	if err != nil {
		if gone := os.Remove(s.file); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return 0, err
	}
	return size, nil
}

// errGoneOn is the error of a save whose guest does not stand still any more.
var errGoneOn = errors.New("the guest has gone on before its memory was saved")

// hasRoom fails for a claim on which the guest's memory has no room, when so many more bytes are free.
func hasRoom(ctx context.Context, conn hypervisor.Connection, directory string, more uint64) error {
	stats, err := conn.Stats(ctx)
	if err != nil {
		return err
	}
	var room unix.Statfs_t
	if err := unix.Statfs(directory, &room); err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	if free := room.Bavail*uint64(room.Bsize) + more; free < stats.MemoryGuest { //nolint:gosec // a block has some bytes
		return fmt.Errorf("the claim has room for %d bytes, and the guest has %d bytes of memory; use a larger one",
			free, stats.MemoryGuest)
	}
	return nil
}

// flush has a file written to its disk, and returns its size.
func flush(name string) (size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Sync(); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// stopSaving ends a save that is under way: a guest whose memory is being written cannot go on.
func (f *freezer) stopSaving(ctx context.Context, conn hypervisor.Connection) error {
	f.saves.Lock()
	s := f.saving
	f.saves.Unlock()
	for s != nil && !s.over() {
		err := conn.AbortMigration(ctx) // which libvirt may be about to begin
		select {
		case <-s.done:
		case <-time.After(abortPause):
		case <-ctx.Done():
			return fmt.Errorf("end the save of the guest's memory: %w", errors.Join(ctx.Err(), err))
		}
	}
	return nil
}
