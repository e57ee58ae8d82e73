package launcher

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// PrepareMigrationTarget implements the contract. What it made once is not made again: the guest may be
// on its way into it.
func (s *service) PrepareMigrationTarget(
	_ context.Context, req *pb.PrepareMigrationTargetRequest,
) (*pb.PrepareMigrationTargetResponse, error) {
	if err := s.fence.arm(); err != nil {
		return nil, err
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	ctx, cancel := context.WithTimeout(s.life, startTimeout)
	defer cancel()
	if err := s.expect(ctx, req); err != nil {
		s.options.Log.Warn("cannot prepare for the guest", "err", err)
		return nil, err
	}
	return &pb.PrepareMigrationTargetResponse{State: s.guest.snapshot()}, nil
}

func (s *service) expect(ctx context.Context, req *pb.PrepareMigrationTargetRequest) error {
	vmi, plan, err := s.read(&pb.StartRequest{VmiJson: req.VmiJson, NetworkPlanJson: req.NetworkPlanJson})
	if err != nil {
		return err
	}
	if s.guest.shuttingDown() || s.guest.snapshot().Lifecycle.Final() {
		return status.Error(codes.FailedPrecondition, "the launcher is shutting down")
	}
	if s.guest.exists() || s.guest.expected() {
		return s.serveDHCP(plan)
	}
	boot := *vmi
	boot.Spec = *disk.WithoutConfigImages(hotplug.AtStart(&vmi.Spec)) // their images come
	images, err := disk.Prepare(ctx, &boot, s.options.Disks, s.run)
	if err != nil {
		return startError(vmi, images, err)
	}
	if err := sameImages(vmi, images); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	kernel, err := disk.FindKernel(vmi, s.options.Disks)
	if err != nil {
		return startError(vmi, images, err)
	}
	if err := sameKernel(vmi, kernel); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	volumes, _ := hotplug.Moving(vmi)
	for _, name := range volumes {
		if hotplug.Volume(&vmi.Spec, name) == nil {
			continue // asked to be taken away once the guest is here
		}
		if images[name], err = disk.PrepareHotplugged(ctx, vmi, name, s.options.Disks, s.run); err != nil {
			return startError(vmi, images, err)
		}
	}
	if err := awaitFilesystems(ctx, &vmi.Spec); err != nil {
		return err
	}
	if err := s.serveDHCP(plan); err != nil {
		return err
	}
	if _, err := s.guest.connection(ctx); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if _, err := s.nvram(vmi); err != nil { // its directory
		return startError(vmi, images, err)
	}
	if err := s.state.expect(vmi); err != nil {
		return startError(vmi, images, err)
	}
	s.credentials.set(credentials.NewPlan(&vmi.Spec))
	s.reporter.set(waysOf(vmi, s.options))
	listener, err := s.listenForSource()
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	incoming, err := s.expectImages(vmi)
	if err != nil {
		listener.Close()
		return status.Error(codes.Internal, err.Error())
	}
	s.incoming <- incomingGuest{
		vmi: vmi, devices: exclusiveDevices(&vmi.Spec, images), listener: listener, images: incoming,
	}
	s.guest.expect(targetsAtStart(hotplug.AtStart(&vmi.Spec)), checksums(images, kernel))
	return nil
}

// holdPause is the pause between attempts to take the devices of a received guest.
const holdPause = 500 * time.Millisecond

// incomingGuest is the guest of another launcher that this one waits for.
type incomingGuest struct {
	vmi *v1.VirtualMachineInstance
	// devices are its block devices.
	devices  []string
	listener net.Listener
	// images is where its images come.
	images net.Listener
}

// holdReceived takes the block devices of a guest that comes by a migration, as Start does, once it runs here and its
// source has released them. Until then it answers the source.
func (s *service) holdReceived(ctx context.Context) {
	var devices []string
	var vmi *v1.VirtualMachineInstance
	select {
	case a := <-s.incoming:
		devices, vmi = a.devices, a.vmi
		answering := make(chan struct{})
		go func() {
			defer close(answering)
			s.serveSource(ctx, a.listener)
		}()
		defer func() {
			// Nothing comes any more. virt-handler may have reported that the source released the guest, so nobody need
			// have called.
			a.images.Close()
			a.listener.Close()
			<-answering
		}()
	case <-ctx.Done():
		return
	}
	if !s.guest.awaitStart(ctx) {
		return
	}
	if err := s.pinReceived(ctx, vmi); err != nil {
		s.options.Log.Warn("cannot give the guest's vCPUs CPUs of their own", "err", err)
	}
	for {
		s.starting.Lock()
		err := s.devices.hold(devices)
		s.starting.Unlock()
		var locked *hypervisor.LockedError
		if !errors.As(err, &locked) {
			if err != nil {
				s.options.Log.Warn("cannot keep others from the guest's devices", "err", err)
			}
			return
		}
		select {
		case <-time.After(holdPause):
		case <-ctx.Done():
			return
		}
	}
}

// expect records that a guest is to come; targets are its disks' names, images its container disks' checksums.
func (g *guest) expect(targets map[string]string, images map[string]uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applyLocked(lifecycle.Expect)
	g.updateLocked(func(s *pb.GuestState) { s.VolumeTargets, s.ImageChecksums = targets, images })
}

func (g *guest) expected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now().Target()
}
