package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

const (
	// attachTimeout bounds an attachment: making the image, QEMU's own work, waiting for libvirtd.
	attachTimeout = 30 * time.Second
	// detachTimeout is the time that a guest may take to release a disk before the caller is to ask again.
	detachTimeout = 10 * time.Second
)

// AttachVolume implements the contract.
func (s *service) AttachVolume(ctx context.Context, req *pb.AttachVolumeRequest) (*pb.AttachVolumeResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	// As Start, it goes on when the caller hangs up; what it has done is found by the next.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachTimeout)
	defer cancel()
	target, err := s.attach(ctx, req)
	if err != nil {
		s.options.Log.Warn("cannot attach a volume", "volume", req.Volume, "err", err)
		return nil, err
	}
	return &pb.AttachVolumeResponse{Target: target}, nil
}

func (s *service) attach(ctx context.Context, req *pb.AttachVolumeRequest) (target string, err error) {
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return "", status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	if volume := hotplug.Volume(&vmi.Spec, req.Volume); volume == nil || !hotplug.Is(volume) {
		return "", status.Errorf(codes.InvalidArgument, "the VMI has no hotplugged volume %q", req.Volume)
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return "", err
	}
	alias := domain.VolumeAlias(req.Volume)
	target, there := now.Disks[alias]
	if there && !now.Empty[alias] {
		s.guest.refresh(ctx, conn, false)
		return target, nil
	}
	source, err := disk.PrepareHotplugged(ctx, vmi, req.Volume, s.options.Disks, s.run)
	images := map[string]domain.Source{req.Volume: source}
	if err != nil {
		return "", startError(vmi, images, err)
	}
	var d *libvirtxml.DomainDisk
	var thread uint
	if there {
		d, err = domain.Medium(vmi, req.Volume, source)
	} else {
		if domain.OwnThread(&vmi.Spec, req.Volume) {
			thread = freeThread(now)
		}
		d, err = domain.Hotplugged(vmi, req.Volume, source, slices.Collect(maps.Values(now.Disks)), thread)
	}
	if err != nil {
		return "", status.Error(codes.InvalidArgument, err.Error())
	}
	xml, err := d.Marshal()
	if err != nil {
		return "", status.Errorf(codes.InvalidArgument, "write the disk: %v", err)
	}
	if !there {
		if err := s.ensureController(ctx, conn, now, &vmi.Spec, d.Target.Bus); err != nil {
			return "", startError(vmi, images, err)
		}
	}
	held := exclusiveDevices(hotplug.Only(&vmi.Spec, req.Volume), images)
	if err := s.devices.hold(held); err != nil {
		return "", startError(vmi, images, err)
	}
	began := time.Now()
	if there {
		err = conn.SetMedium(ctx, alias, xml)
	} else {
		target, err = d.Target.Dev, attachOn(ctx, conn, now, xml, thread)
	}
	if err != nil {
		var locked *hypervisor.LockedError
		if errors.As(err, &locked) && locked.Path == "" {
			locked.Path = source.Path
		}
		if left := s.devices.drop(held); left != nil {
			s.options.Log.Warn("cannot let a device go", "device", held, "err", left)
		}
		return "", startError(vmi, images, err) // alone: the message of a joined status has its code in it
	}
	s.options.Log.Info("attached", "volume", req.Volume, "target", target, "took", time.Since(began))
	s.guest.refresh(ctx, conn, false)
	return target, nil
}

// freeThread returns the number of an I/O thread that a disk can have to itself: of one that is there, or a new one.
func freeThread(now hypervisor.Domain) uint {
	used := slices.Collect(maps.Values(now.DiskThreads))
	id := uint(domain.FirstPluggedThread)
	for slices.Contains(used, id) {
		id++
	}
	return id
}

// attachOn plugs a disk in, with an I/O thread unless that is 0.
func attachOn(ctx context.Context, conn hypervisor.Connection, now hypervisor.Domain, xml string, thread uint) error {
	if thread > 0 && !slices.Contains(now.Threads, thread) {
		if err := conn.AddThread(ctx, thread); err != nil {
			return fmt.Errorf("make an I/O thread: %w", err)
		}
	}
	return conn.Attach(ctx, xml) // a thread whose disk does not come is the next one's
}

// ensureController plugs the controller of scsi disks in, if the disk needs it and the guest was started without.
func (s *service) ensureController(
	ctx context.Context, conn hypervisor.Connection, now hypervisor.Domain,
	spec *v1.VirtualMachineInstanceSpec, bus string,
) error {
	if bus != string(v1.DiskBusSCSI) || now.SCSI {
		return nil
	}
	xml, err := domain.SCSIController(spec).Marshal()
	if err != nil {
		return err
	}
	return conn.Attach(ctx, xml)
}

// DetachVolume implements the contract.
func (s *service) DetachVolume(ctx context.Context, req *pb.DetachVolumeRequest) (*pb.DetachVolumeResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	if err := errors.Join(s.dumper.forget(req.Volume), s.freezer.forgetMemory(req.Volume)); err != nil {
		return nil, err
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return nil, err
	}
	alias := domain.VolumeAlias(req.Volume)
	_, there := now.Disks[alias]
	switch {
	case !there, req.Eject && now.Empty[alias]:
	case req.Eject:
		if err := conn.SetMedium(ctx, alias, ""); err != nil {
			return nil,
				status.Errorf(codes.FailedPrecondition, "the guest keeps the disc; unmount it in the guest: %v", err)
		}
		s.options.Log.Info("ejected", "volume", req.Volume)
	default:
		if err := conn.Detach(ctx, alias); err != nil {
			return nil, startError(&v1.VirtualMachineInstance{}, nil, err)
		}
		if err := s.gone(ctx, conn, "the disk", func(d hypervisor.Domain) bool { return d.Disks[alias] == "" }); err !=
			nil {
			return nil, err
		}
		s.options.Log.Info("detached", "volume", req.Volume)
		if id := now.DiskThreads[alias]; id >= domain.FirstPluggedThread {
			if err := conn.RemoveThread(ctx, id); err != nil {
				s.options.Log.Warn("cannot end the disk's I/O thread", "volume", req.Volume, "err", err)
			}
		}
	}
	s.guest.refresh(ctx, conn, false)
	device := s.options.Disks.BlockDevice(req.Volume)
	if err := s.devices.drop([]string{device}); err != nil {
		s.options.Log.Warn("cannot let a device go", "device", device, "err", err)
	}
	return &pb.DetachVolumeResponse{}, nil
}

// gone waits until the domain has a device no more. Each change of the guest's state makes it look; libvirt
// reports the removal as one, and the guest's state changes with it, since it lists the disks and interfaces.
func (s *service) gone(
	ctx context.Context, conn hypervisor.Connection, device string, is func(hypervisor.Domain) bool,
) error {
	for {
		_, changed := s.guest.watch()
		now, err := conn.Domain(ctx)
		if errors.Is(err, hypervisor.ErrNoDomain) {
			return status.Error(codes.FailedPrecondition, notHere)
		}
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if is(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.Error(codes.FailedPrecondition, "the guest has not let go of "+device+" yet"+remedy[device])
		}
	}
}

// remedy says what a guest's user may do about a device that is not released.
var remedy = map[string]string{"the disk": "; unmount it in the guest"}

// domainNow returns a connection and the domain, which must exist.
func (s *service) domainNow(ctx context.Context) (hypervisor.Connection, hypervisor.Domain, error) {
	if !s.guest.exists() {
		return nil, hypervisor.Domain{}, status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return nil, hypervisor.Domain{}, status.Error(codes.Unavailable, err.Error())
	}
	now, err := conn.Domain(ctx)
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		return nil, now, status.Error(codes.FailedPrecondition, notHere)
	case err != nil:
		return nil, now, status.Error(codes.Unavailable, err.Error())
	}
	return conn, now, nil
}

// volumeTargets returns the names of disks by volume; a drive without a medium has none.
func volumeTargets(d hypervisor.Domain) map[string]string {
	out := make(map[string]string, len(d.Disks))
	for alias, target := range d.Disks {
		if volume, ok := strings.CutPrefix(alias, domain.VolumeAlias("")); ok && !d.Empty[alias] {
			out[volume] = target
		}
	}
	return out
}

// targetsAtStart returns the volumeTargets of a guest that is to start with spec.
func targetsAtStart(spec *v1.VirtualMachineInstanceSpec) map[string]string {
	out := domain.Targets(spec)
	maps.DeleteFunc(out, func(volume, _ string) bool { return hotplug.Volume(spec, volume) == nil })
	return out
}
