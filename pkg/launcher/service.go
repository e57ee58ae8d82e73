package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/claim"
	"github.com/virtkit/virtkit/pkg/disk"
	"github.com/virtkit/virtkit/pkg/domain"
	"github.com/virtkit/virtkit/pkg/hotplug"
	"github.com/virtkit/virtkit/pkg/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/network"
	"github.com/virtkit/virtkit/pkg/network/dhcp"
	"github.com/virtkit/virtkit/pkg/passthrough"
)

// service is what virt-handler calls.
type service struct {
	pb.UnimplementedLauncherServer
	options Options
	guest   *guest
	run     disk.Run
	// life ends with SIGTERM, and with it a Start under way.
	life context.Context

	// starting is held by Start and by what must not come between.
	starting sync.Mutex
	dhcp     []*dhcp.Server
	devices  exclusive
	// plugging is held by what changes the guest's disks while it runs.
	plugging sync.Mutex

	credentials *keeper
	freezer     *freezer
	tpm         *tpmKeeper
	teller      *teller
	dumper      *dumper
	fence       *fence
	// seeds has the images that are to come with a guest, once.
	seeds chan incomingSeeds
	// running are the programs in the guest that somebody waits for.
	running chan struct{}

	// arriving has a guest that is to arrive, once.
	arriving chan arrival
}

func newService(life context.Context, o Options, g *guest, run disk.Run) *service {
	return &service{
		options: o, guest: g, run: run, life: life,
		credentials: newKeeper(g, o.Disks.Credentials, o.Log), freezer: newFreezer(g, o.Log), running: make(chan struct{}, maxPrograms),
		arriving: make(chan arrival, 1), tpm: newTPMKeeper(o, g), teller: newTeller(o, g), dumper: newDumper(o, g), fence: newFence(o), seeds: make(chan incomingSeeds, 1),
	}
}

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
	case isFinal(state.Lifecycle):
		return nil
	case s.guest.shuttingDown() && !s.guest.exists():
		return status.Error(codes.FailedPrecondition, "the launcher is shutting down")
	}
	s.credentials.keep(credentials.NewPlan(&vmi.Spec))
	s.teller.tell(waysOf(vmi, s.options))
	boot := *vmi
	boot.Spec = *hotplug.AtStart(&vmi.Spec)
	targets := targetsAtStart(&boot.Spec)
	var images map[string]domain.Source
	var kernel disk.Kernel
	known := func(st *pb.GuestState) {
		if len(st.ImageChecksums) == 0 {
			st.ImageChecksums = checksums(images, kernel)
		}
		if len(st.VolumeTargets) == 0 { // else the domain itself has told
			st.VolumeTargets = targets
		}
	}
	if s.guest.exists() {
		// Also one whose creation seemed to fail, as libvirtd died over it.
		s.guest.update(known)
		return s.serveDHCP(plan)
	}
	if s.options.MigrationTarget {
		return status.Error(codes.FailedPrecondition, "the guest runs in another launcher, from which it is to come here")
	}
	began := time.Now()
	images, err = disk.Prepare(ctx, &boot, s.options.Disks, s.run)
	if err != nil {
		return startError(vmi, images, err)
	}
	nvram, err := s.nvram(vmi)
	if err == nil {
		err = s.tpm.restore(ctx, vmi)
	}
	if err != nil {
		return startError(vmi, images, err)
	}
	facts := s.facts(images, plan, nvram)
	if facts.CPUs, err = ownCPUs(vmi, "/sys"); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if kernel, err = disk.FindKernel(vmi, s.options.Disks); err != nil {
		return startError(vmi, images, err)
	}
	facts.Kernel, facts.Initrd = kernel.Kernel, kernel.Initrd
	d, err := domain.Build(vmi, facts)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	xml, err := d.Marshal()
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "write the domain: %v", err)
	}
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
	prepared := time.Now()
	s.options.Log.Debug("domain", "xml", xml)
	if err := s.guest.create(ctx, xml, startsPaused(vmi), known); err != nil {
		s.closeDHCP()
		s.releaseDevices()
		return startError(vmi, images, err)
	}
	s.options.Log.Info("started", "prepare", prepared.Sub(began), "create", time.Since(prepared))
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

// facts are what the domain depends on besides the VMI.
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

// startError gives an error the code that tells virt-handler whether to try again.
func startError(vmi *v1.VirtualMachineInstance, images map[string]domain.Source, err error) error {
	var locked *hypervisor.LockedError
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
func lockedMessage(vmi *v1.VirtualMachineInstance, images map[string]domain.Source, locked *hypervisor.LockedError) string {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if images[v.Name].Path != locked.Path {
			continue
		}
		if pvc := claim.Of(v); pvc != nil {
			return fmt.Sprintf("volume %q: PersistentVolumeClaim %s is in use by another virtual machine; stop that one, or make the disk shareable in both", v.Name, pvc.ClaimName)
		}
		return fmt.Sprintf("volume %q: its image is in use by another process", v.Name)
	}
	return locked.Error()
}

// serveDHCP starts a server for every NIC that has an address coming, unless there is one.
func (s *service) serveDHCP(plan network.Plan) error {
	if len(plan.Interfaces) == 0 || len(s.dhcp) > 0 {
		return nil
	}
	resolv, err := readResolv(s.options.ResolvConf)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	for _, nic := range plan.Interfaces {
		c, ok, err := dhcp.NewConfig(nic, resolv)
		if err != nil {
			s.closeDHCP()
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if !ok {
			continue
		}
		server, err := dhcp.Listen(c, s.options.Log)
		if err != nil {
			s.closeDHCP()
			return status.Errorf(codes.FailedPrecondition, "interface %q: %v", nic.Name, err)
		}
		s.dhcp = append(s.dhcp, server)
	}
	return nil
}

func readResolv(path string) (dhcp.Resolv, error) {
	f, err := os.Open(path)
	if err != nil {
		return dhcp.Resolv{}, fmt.Errorf("read the pod's name servers: %w", err)
	}
	resolv, err := dhcp.ParseResolv(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return dhcp.Resolv{}, fmt.Errorf("read the pod's name servers: %w", err)
	}
	return resolv, nil
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

func (s *service) closeDHCP() {
	for _, server := range s.dhcp {
		if err := server.Close(); err != nil {
			s.options.Log.Warn("cannot end a DHCP server", "err", err)
		}
	}
	s.dhcp = nil
}

// terminate is what SIGTERM does: a Start under way ends or has ended first.
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
		if isFinal(state.Lifecycle) {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Pause implements the contract.
func (s *service) Pause(ctx context.Context, _ *pb.PauseRequest) (*pb.PauseResponse, error) {
	return &pb.PauseResponse{}, s.steer(ctx, hypervisor.Running, hypervisor.Connection.Suspend)
}

// Unpause implements the contract.
func (s *service) Unpause(ctx context.Context, _ *pb.UnpauseRequest) (*pb.UnpauseResponse, error) {
	return &pb.UnpauseResponse{}, s.steer(ctx, hypervisor.Paused, hypervisor.Connection.Resume)
}

// Reset implements the contract.
func (s *service) Reset(ctx context.Context, _ *pb.ResetRequest) (*pb.ResetResponse, error) {
	return &pb.ResetResponse{}, s.steer(ctx, hypervisor.Running, hypervisor.Connection.Reset)
}

// SoftReboot implements the contract.
func (s *service) SoftReboot(ctx context.Context, _ *pb.SoftRebootRequest) (*pb.SoftRebootResponse, error) {
	return &pb.SoftRebootResponse{}, s.steer(ctx, hypervisor.Running, hypervisor.Connection.Reboot)
}

// steerTimeout bounds the wait for libvirtd while it is being restarted.
const steerTimeout = 10 * time.Second

// steer does something to a guest that must be in the given state. The state is known to the callers
// (and to watchers) when it returns.
func (s *service) steer(ctx context.Context, want hypervisor.Run, do func(hypervisor.Connection, context.Context) error) error {
	if !s.guest.exists() {
		return status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if s.guest.handing() {
		return status.Error(codes.FailedPrecondition, "the guest is being handed over to another node, which has not said yet that it runs there")
	}
	d, err := conn.Domain(ctx)
	if err == nil && d.Run != want {
		return status.Error(codes.FailedPrecondition, wrongState(d.Run))
	}
	if err == nil {
		err = do(conn, ctx)
	}
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		return status.Error(codes.FailedPrecondition, "the guest does not run any more")
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	}
	s.guest.refresh(ctx, conn, false)
	return nil
}

func wrongState(r hypervisor.Run) string {
	switch r {
	case hypervisor.Paused:
		return "the guest is paused"
	case hypervisor.Stopping:
		return "the guest is shutting down"
	}
	return "the guest is not paused"
}
