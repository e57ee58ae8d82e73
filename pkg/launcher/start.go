package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// startTimeout bounds a Start: probing QEMU for the first time takes seconds, all else less than one.
const startTimeout = 2 * time.Minute

// Start implements the contract. It goes on when the caller hangs up, so that a virt-handler that is
// restarted finds the guest running instead of half made.
func (s *service) Start(_ context.Context, req *pb.StartRequest) (*pb.StartResponse, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	ctx, cancel := context.WithTimeout(s.life, startTimeout)
	defer cancel()
	if err := s.fence.arm(); err != nil {
		return nil, err
	}
	if err := s.start(ctx, req); err != nil {
		s.options.Log.Warn("cannot start the guest", "err", err)
		return nil, err
	}
	return &pb.StartResponse{State: s.guest.snapshot()}, nil
}

func (s *service) start(ctx context.Context, req *pb.StartRequest) error {
	vmi, plan, err := s.read(req)
	if err != nil {
		return err
	}
	switch state := s.guest.snapshot(); {
	case state.Lifecycle.Final():
		return nil
	case s.guest.shuttingDown() && !s.guest.exists():
		return status.Error(codes.FailedPrecondition, "the launcher is shutting down")
	}
	s.credentials.set(credentials.NewPlan(&vmi.Spec))
	s.reporter.set(waysOf(vmi, s.options))
	boot := *vmi
	boot.Spec = *hotplug.AtStart(&vmi.Spec)
	targets := targetsAtStart(&boot.Spec)
	var made ingredients
	known := func(st *pb.GuestState) {
		if len(st.ImageChecksums) == 0 {
			st.ImageChecksums = checksums(made.images, made.kernel)
		}
		if len(st.VolumeTargets) == 0 { // else the domain itself has said so
			st.VolumeTargets = targets
		}
	}
	if s.guest.exists() {
		// Also one whose creation seemed to fail, as libvirtd died over it.
		s.guest.update(known)
		return s.serveDHCP(plan)
	}
	if s.options.MigrationTarget {
		return status.Error(codes.FailedPrecondition,
			"the guest runs in another launcher, from which it is to come here")
	}
	began := time.Now()
	if made, err = s.assemble(ctx, vmi, &boot, plan); err != nil {
		return err
	}
	if err := s.surround(ctx, vmi, &boot, plan, made.images); err != nil {
		return err
	}
	prepared := time.Now()
	s.options.Log.Debug("domain", "xml", made.xml)
	if err := s.makeRun(ctx, vmi, made.xml, known); err != nil {
		s.closeDHCP()
		s.releaseDevices()
		return startError(vmi, made.images, err)
	}
	s.options.Log.Info("started", "prepare", prepared.Sub(began), "create", time.Since(prepared))
	return nil
}

// ingredients are what a guest's domain is built from.
type ingredients struct {
	images map[string]domain.Source
	kernel disk.Kernel
	xml    string
}

// assemble makes a guest's disks and restores its state, and builds the domain on them. boot is vmi as it starts,
// without what is plugged in afterwards.
func (s *service) assemble(
	ctx context.Context, vmi, boot *v1.VirtualMachineInstance, plan network.Plan,
) (made ingredients, err error) {
	s.growAtStart(boot)
	if made.images, err = disk.Prepare(ctx, boot, s.options.Disks, s.run); err != nil {
		return made, startError(vmi, made.images, err)
	}
	nvram, err := s.nvram(vmi)
	if err == nil {
		err = s.state.restore(ctx, vmi)
	}
	if err != nil {
		return made, startError(vmi, made.images, err)
	}
	facts := s.facts(made.images, plan, nvram)
	if facts.CPUs, err = ownCPUs(vmi, "/sys"); err != nil {
		return made, status.Error(codes.FailedPrecondition, err.Error())
	}
	if made.kernel, err = disk.FindKernel(vmi, s.options.Disks); err != nil {
		return made, startError(vmi, made.images, err)
	}
	facts.Kernel, facts.Initrd = made.kernel.Kernel, made.kernel.Initrd
	d, err := domain.Build(vmi, facts)
	if err != nil {
		return made, status.Error(codes.InvalidArgument, err.Error())
	}
	if made.xml, err = d.Marshal(); err != nil {
		return made, status.Errorf(codes.InvalidArgument, "write the domain: %v", err)
	}
	return made, nil
}

// surround makes what a guest needs outside of QEMU: its devices are held, DHCP is served, and virtiofsd listens.
func (s *service) surround(
	ctx context.Context, vmi, boot *v1.VirtualMachineInstance, plan network.Plan, images map[string]domain.Source,
) error {
	if err := s.devices.hold(exclusiveDevices(&boot.Spec, images)); err != nil {
		return startError(vmi, images, err)
	}
	if err := s.serveDHCP(plan); err != nil {
		s.releaseDevices()
		return err
	}
	if err := awaitFilesystems(ctx, &vmi.Spec); err != nil {
		s.closeDHCP()
		s.releaseDevices()
		return err
	}
	return nil
}

func startsPaused(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Spec.StartStrategy != nil && *vmi.Spec.StartStrategy == v1.StartStrategyPaused
}

// read reads a request and checks that it is for this launcher.
func (s *service) read(req *pb.StartRequest) (*v1.VirtualMachineInstance, network.Plan, error) {
	var plan network.Plan
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return nil, plan, status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	o := s.options
	if vmi.Namespace != o.Namespace || vmi.Name != o.Name || (o.UID != "" && string(vmi.UID) != o.UID) {
		return nil, plan, status.Errorf(codes.InvalidArgument, "this is the launcher of %s/%s (%s), not of %s/%s (%s)",
			o.Namespace, o.Name, o.UID, vmi.Namespace, vmi.Name, vmi.UID)
	}
	if len(req.NetworkPlanJson) > 0 {
		if err := json.Unmarshal(req.NetworkPlanJson, &plan); err != nil {
			return nil, plan, status.Errorf(codes.InvalidArgument, "read the network plan: %v", err)
		}
	}
	return vmi, plan, nil
}

// facts returns what the domain depends on besides the VMI.
func (s *service) facts(images map[string]domain.Source, plan network.Plan, nvram string) domain.Facts {
	in := func(name string) string { return filepath.Join(s.options.RunDir, name) }
	var usb []string
	for n := range names.USBRedirections {
		usb = append(usb, in(names.SocketUSB+strconv.Itoa(n)+names.SuffixUSB))
	}
	return domain.Facts{
		KVM:          hardwareKVM(s.options.KVMDevice),
		Emulator:     s.options.Emulator,
		Firmware:     s.options.Firmware,
		NVRAM:        nvram,
		SMBIOS:       s.options.SMBIOS,
		Ignition:     s.options.Disks.Ignition(),
		Disks:        images,
		Network:      plan,
		SerialSocket: in(names.SocketSerial),
		SerialLog:    in(names.LogSerial),
		VNCSocket:    in(names.SocketVNC),
		AgentSocket:  in("agent.sock"),
		USBSockets:   usb,
		Secrets:      s.options.Disks.Secrets,
		Balloon:      s.options.Balloon,
		MetricsPort:  in(names.SocketMetrics),

		PluginVariables: passthrough.Environment(os.Environ()),
	}
}

// startError adds to an error the code by which virt-handler knows whether to try again.
func startError(vmi *v1.VirtualMachineInstance, images map[string]domain.Source, err error) error {
	var locked *hypervisor.LockedError
	if _, said := status.FromError(err); said {
		return err
	}
	switch {
	case errors.As(err, &locked):
		return status.Error(codes.FailedPrecondition, lockedMessage(vmi, images, locked))
	case errors.Is(err, disk.ErrInvalid), errors.Is(err, hypervisor.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.FailedPrecondition, "the launcher is shutting down")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// lockedMessage names the volume whose image is in use.
func lockedMessage(
	vmi *v1.VirtualMachineInstance, images map[string]domain.Source, locked *hypervisor.LockedError,
) string {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if images[v.Name].Path != locked.Path {
			continue
		}
		if pvc := claims.Of(v); pvc != nil {
			return fmt.Sprintf("%sPersistentVolumeClaim %s %s virtual machine; stop that one, or make the disk "+
				"shareable in both", hotplug.Naming(v.Name), pvc.ClaimName, hotplug.InUse)
		}
		return hotplug.Naming(v.Name) + "its image " + hotplug.InUse + " process"
	}
	return locked.Error()
}

// releaseDevices lets other guests have the devices after a start that has failed.
func (s *service) releaseDevices() {
	// A guest whose creation only seemed to fail has them still.
	if s.guest.exists() {
		return
	}
	if err := s.devices.release(); err != nil {
		s.options.Log.Warn("cannot let a device go", "err", err)
	}
}
