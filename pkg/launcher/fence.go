package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// fenceTick is the interval at which a launcher checks whether its time is over.
const fenceTick = time.Second

// fence ends the launcher, and with it the guest, when the cluster has not heard of the node for too long: the guest is
// started again elsewhere then. It needs nobody for that, neither virt-handler nor libvirtd nor a disk. Once the time
// is over nothing undoes it.
type fence struct {
	after time.Duration
	now   func() time.Duration
	tick  func(time.Duration) <-chan time.Time
	// end ends all processes of the container at once, and does not return.
	end func(why string)

	mu sync.Mutex
	// heard is until when the cluster has heard of the node; armed says that there may be a guest, suspended that
	// nobody counts meanwhile.
	heard     time.Duration
	armed     bool
	suspended bool
}

func newFence(o Options) *fence {
	return &fence{
		after: o.FenceAfter, now: boottime.Now, tick: time.After, heard: -o.FenceAfter,
		end: func(why string) { endPod(why, o.TerminationLog, o.Log) },
	}
}

// run looks until ctx ends.
func (f *fence) run(ctx context.Context) {
	if f.after <= 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.tick(fenceTick):
		}
		f.mu.Lock()
		f.look()
		f.mu.Unlock()
	}
}

// overdue returns for how long the time is over; it is negative while it is not.
func (f *fence) overdue() time.Duration { return f.now() - f.heard - f.after }

func (f *fence) look() {
	if f.armed && !f.suspended && f.overdue() >= 0 {
		f.end(fmt.Sprintf("the cluster has not heard of this node for %s", f.after))
	}
}

// arm is called before there is a guest. It fails when the time is over.
func (f *fence) arm() error {
	if f.after <= 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	if f.overdue() >= 0 {
		return status.Errorf(codes.FailedPrecondition, "the cluster has not heard of this node for %s", f.after)
	}
	f.armed = true
	return nil
}

// suspend lets the guest live until the next renew. One whose time is over already does not; nor does a request change
// anything that comes after the renew of a later virt-handler.
func (f *fence) suspend(heard time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	if heard < f.heard {
		return status.Error(codes.FailedPrecondition, "the cluster has heard of the node since")
	}
	f.suspended = f.armed
	return nil
}

// renew notes until when the cluster has heard of the node.
func (f *fence) renew(heard time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if heard > f.now() {
		return status.Error(codes.InvalidArgument, "the time that the cluster has heard of the node is to come")
	}
	f.look()
	f.heard, f.suspended = max(f.heard, heard), false
	return nil
}

// Renew implements the contract.
func (s *service) Renew(_ context.Context, req *pb.RenewRequest) (*pb.RenewResponse, error) {
	switch {
	case s.fence.after <= 0:
	case req.Suspend:
		if err := s.fence.suspend(req.Heard.AsDuration()); err != nil {
			return nil, err
		}
	case req.Heard != nil:
		if err := s.fence.renew(req.Heard.AsDuration()); err != nil {
			return nil, err
		}
	}
	return &pb.RenewResponse{FenceAfter: durationpb.New(max(0, s.fence.after))}, nil
}

// endPod kills all that runs in the container before anything else that might hang, and then ends itself.
func endPod(why, terminationLog string, log *slog.Logger) {
	if os.Getpid() == 1 {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil {
			log.Error("cannot kill the guest, ending without", "err", err)
		}
	}
	go func() {
		log.Error("guest killed", "reason", why)
		text, err := termination.Message{Lifecycle: pb.Lifecycle_LIFECYCLE_DESTROYED, Reason: "fenced: " + why}.Encode()
		if err == nil {
			err = os.WriteFile(terminationLog, text, 0o600)
		}
		if err != nil {
			log.Warn("cannot write the termination message", "err", err)
		}
		os.Exit(1)
	}()
	time.Sleep(time.Second) // for a disk that hangs
	os.Exit(1)
}
