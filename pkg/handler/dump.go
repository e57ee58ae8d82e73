package handler

import (
	"context"
	"errors"
	"time"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// dumpLook is the interval at which the progress of a memory dump is read.
const dumpLook = time.Second

// dumping reports whether a memory dump is under way.
func (s *session) dumping() bool {
	for _, v := range s.observation().Volumes {
		if !v.DumpStarted.IsZero() && v.DumpEnded.IsZero() {
			return true
		}
	}
	return false
}

// mountMemory gives the launcher the claim for the memory that a snapshot is to have. It is written when the
// snapshot's moment has come, which virt-controller says.
func (s *session) mountMemory(ctx context.Context, process *podfs.Process, t task) (vmistatus.Volume, error) {
	if t.block {
		return vmistatus.Volume{}, errors.New("the claim is a block device, and the guest's memory is a file")
	}
	if err := s.giveVolume(ctx, process, t); err != nil {
		return vmistatus.Volume{}, err
	}
	return vmistatus.Volume{Mounted: true}, nil
}

// dumpMemory has the launcher write the guest's memory to a claim that is not a disk. It returns at once, with how far
// that is.
func (s *session) dumpMemory(
	ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process, t task,
) (vmistatus.Volume, error) {
	var v vmistatus.Volume
	if t.block {
		return v, errors.New("the claim is a block device; a memory dump is a file, so use a claim of mode Filesystem")
	}
	if err := s.giveVolume(ctx, process, t); err != nil {
		return v, err
	}
	v.Mounted = true
	within, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	dump, err := client.DumpMemory(within, &launcherpb.DumpMemoryRequest{Volume: t.name})
	if err != nil {
		return v, err
	}
	v.DumpStarted, v.DumpFile, v.Failure = dump.GetStarted().AsTime(), dump.GetFile(), dump.GetFailure()
	if dump.GetEnded() != nil {
		v.DumpEnded = dump.GetEnded().AsTime()
	}
	return v, nil
}
