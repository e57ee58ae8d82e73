package launcher

import (
	"context"
	"io"
	"sync"
	"time"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/disk"
)

// service serves virt-handler's calls.
type service struct {
	pb.UnimplementedLauncherServer
	options Options
	guest   *guest
	run     disk.Run
	// life ends with SIGTERM, and with it a Start under way.
	life context.Context

	// starting is held by Start and by what must not come between.
	starting sync.Mutex
	dhcp     []io.Closer
	devices  exclusive
	// plugging is held by what changes the guest's disks while it runs.
	plugging sync.Mutex
	// toldSize are the volumes whose disks' sizes the guest has been told here; plugging is held for it.
	toldSize map[string]bool

	credentials *credentialSync
	freezer     *freezer
	state       *stateSync
	reporter    *metricsReporter
	dumper      *dumper
	fence       *fence
	// images has the images that are to come with a guest, once.
	images chan incomingImages
	// running counts the programs in the guest that somebody waits for.
	running slots
	// copying are the files that are copied to or from the guest.
	copying slots

	// incoming has the guest of another launcher that this one waits for, once.
	incoming chan incomingGuest
}

func newService(life context.Context, o Options, g *guest, run disk.Run) *service {
	return &service{
		options: o, guest: g, run: run, life: life, toldSize: map[string]bool{},
		credentials: newCredentialSync(g, o.Disks.Credentials, o.Log), freezer: newFreezer(g, o.Log),
		state:    newStateSync(o, g),
		reporter: newMetricsReporter(o, g), dumper: newDumper(o, g), fence: newFence(o),
		running:  make(slots, maxPrograms),
		copying:  make(slots, maxCopies),
		incoming: make(chan incomingGuest, 1), images: make(chan incomingImages, 1),
	}
}

// terminate handles SIGTERM: a Start under way ends or has ended first.
func (s *service) terminate(grace time.Duration) {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.guest.shutdown(grace)
}

// Shutdown implements the contract.
func (s *service) Shutdown(_ context.Context, req *pb.ShutdownRequest) (*pb.ShutdownResponse, error) {
	s.terminate(req.GracePeriod.AsDuration())
	return &pb.ShutdownResponse{}, nil
}

// Watch implements the contract.
func (s *service) Watch(_ *pb.WatchRequest, stream pb.Launcher_WatchServer) error {
	for {
		state, changed := s.guest.watch()
		if err := stream.Send(state); err != nil {
			return err
		}
		if state.Lifecycle.Final() {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
