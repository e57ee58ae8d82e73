// Package launcher is virt-launcher: PID 1 of a VM's pod, where it runs libvirtd and one guest.
//
//	virt-handler ──gRPC over launcher.sock──► service ──► guest ──► hypervisor.Connection ──► libvirtd ─► QEMU
//	                                             │          ▲                                    ▲
//	                                             │          └── events, agent, clock             │
//	                                             └── disk.Prepare, domain.Build, dhcp    daemon: starts, restarts
//
// It has no access to Kubernetes and talks to virt-handler alone. The pod lives as long as the
// guest: the launcher waits for Start, and exits once the guest has ended and virt-handler knows that.
// SIGTERM is Shutdown with the pod's grace period. libvirtd may die; it is started again and finds
// its QEMU. If QEMU dies, the guest has crashed. If the launcher dies, the kernel ends the pod.
//
// Package lifecycle has the table of the guest's states and of what may follow each. Only applyLocked (life.go) changes
// the state.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// Options are a launcher's arguments.
type Options struct {
	// Namespace, Name and UID are the VMI's; Start refuses another's.
	Namespace, Name, UID string
	// Node is the node's name, for a guest's metrics.
	Node string
	// GracePeriod is the time in which the guest must shut down after SIGTERM.
	GracePeriod time.Duration
	// FenceAfter is the time since the cluster last heard of the node after which the guest is ended; 0 means never.
	FenceAfter time.Duration
	// MigrationTarget says that the guest comes from another launcher, and is not to be started here.
	MigrationTarget bool
	// RunDir and Disks are the mount points of the pod's volumes.
	RunDir string
	Disks  disk.Dirs
	// VMState is the mount point of the claim of the state that outlives the guest beside its disks.
	VMState string
	// TerminationLog is the file that the kubelet reads when the container has ended.
	TerminationLog string
	// ResolvConf is the pod's resolv.conf.
	ResolvConf string
	// Emulator and Firmware are paths in the launcher image, Libvirtd its daemon.
	Emulator string
	Firmware domain.Firmware
	Libvirtd string
	// SMBIOS is the cluster's configuration of SMBIOS; empty fields are KubeVirt's defaults.
	SMBIOS v1.SMBiosConfiguration
	// Balloon is the cluster's configuration of memory balloons.
	Balloon domain.Balloon
	// LogFilters are libvirt's, as launcherlog.ParseFilters has them; "" means its own.
	LogFilters string
	// KVMDevice is used when it is there and is hardware virtualisation.
	KVMDevice string
	// Hugepages is the mount point of huge pages, if the pod has any.
	Hugepages string
	// Connect opens connections to libvirtd.
	Connect hypervisor.Connect
	Log     *slog.Logger
}

// PodOptions returns the options of a real launcher pod, but for what is particular to its VMI.
func PodOptions() Options {
	return Options{
		GracePeriod:    30 * time.Second,
		RunDir:         names.RunDir,
		Disks:          disk.PodDirs(),
		VMState:        names.VMStateDir,
		TerminationLog: "/dev/termination-log",
		ResolvConf:     "/etc/resolv.conf",
		Emulator:       "/usr/bin/qemu-system-x86_64",
		Firmware: domain.Firmware{
			Code:       "/usr/share/OVMF/OVMF_CODE_4M.fd",
			Vars:       "/usr/share/OVMF/OVMF_VARS_4M.fd",
			SecureCode: "/usr/share/OVMF/OVMF_CODE_4M.ms.fd",
			SecureVars: "/usr/share/OVMF/OVMF_VARS_4M.ms.fd",
		},
		Libvirtd:  "libvirtd",
		KVMDevice: "/dev/kvm",
		Hugepages: names.HugepagesDir,
		Balloon:   domain.Balloon{Period: names.DefaultBalloonPeriod},
	}
}

// maxMessage bounds a gRPC message, bytes; a VMI is some kilobytes.
const maxMessage = 4 << 20

// farewell is the time that the launcher waits at its end for virt-handler to take the last message.
const farewell = 500 * time.Millisecond

// Run returns the launcher's life. It returns when the guest has ended, or when ctx ends (SIGTERM) before
// there was one; the error says that the guest crashed or that the launcher could not do its work.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.RunDir, 0o750); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	children := newChildren()
	d := newDaemon(o, children)
	if err := d.configure(); err != nil {
		return err
	}
	probes, err := listenForProbes(o.RunDir)
	if err != nil {
		return err
	}
	// The socket comes before all that takes time: virt-handler finds the pod by it, and prepares the
	// network and the capability cache meanwhile.
	listener, err := listen(filepath.Join(o.RunDir, names.SocketLauncher))
	if err != nil {
		return errors.Join(err, probes.Close())
	}
	// What runs in the background lives until the guest is gone, not until SIGTERM.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running, reaping sync.WaitGroup
	// Children are reaped until all who may wait for one have returned.
	last, stopReaping := context.WithCancel(context.Background())
	defer reaping.Wait()
	defer stopReaping()
	said := newLines(o.Log.Handler())
	defer said.close()
	defer running.Wait()
	defer stop()
	stderr, err := newDaemonLog(said)
	if err != nil {
		return errors.Join(err, probes.Close(), listener.Close())
	}
	d.stderr = stderr.w
	running.Go(func() { stderr.run(background) })
	reaping.Go(func() { children.reap(last) })
	running.Go(func() { d.run(background) })

	qemuLog := filepath.Join(d.cacheHome(), "libvirt/qemu/log", domain.Name(o.Namespace, o.Name)+".log")
	g := newGuest(d.connect, qemuLog, o.Log)
	g.note = o.note
	pidFile := filepath.Join(d.runtimeDir(), "libvirt/qemu/run", domain.Name(o.Namespace, o.Name)+".pid")
	g.qemu = func() (process, error) { return findQEMU(pidFile, o.Emulator) }
	s := newService(ctx, o, g, children.command)
	logs := boundedLogs(filepath.Join(o.RunDir, names.LogSerial), qemuLog, said)
	for _, work := range []func(context.Context){
		g.follow, g.askAgent, g.stop, g.move,
		func(ctx context.Context) { slimDown(ctx, g, o.Log) },
		func(ctx context.Context) { trimLogs(ctx, logs, o.Log) },
		s.credentials.run, s.freezer.run, s.freezer.runSaves, s.holdReceived, s.state.run, s.serveImages,
		s.reporter.run, s.dumper.run, s.fence.run,
		func(ctx context.Context) { newProber(s).serve(ctx, probes) },
	} {
		running.Go(func() { work(background) })
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
		grpc.ChainUnaryInterceptor(logCalls(o.Log), g.unaryMoved), grpc.StreamInterceptor(g.streamMoved))
	pb.RegisterLauncherServer(server, s)
	served := make(chan error, 1)
	running.Go(func() { served <- server.Serve(listener) })
	o.Log.Info("ready", "namespace", o.Namespace, "name", o.Name)

	select {
	case <-g.ended():
	case err := <-served:
		return fmt.Errorf("serve virt-handler: %w", err)
	case <-ctx.Done():
		o.Log.Info("asked to end", "grace", o.GracePeriod)
		g.terminate()
		s.terminate(o.GracePeriod)
		<-g.ended()
	}
	err = report(g.snapshot(), o)
	g.awaitTidied()
	sayGoodbye(server)
	s.closeDHCP()
	return err
}

// logCalls logs what virt-handler asks, for debugging.
func logCalls(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (any, error) {
		began := time.Now()
		response, err := answer(ctx, request)
		log.DebugContext(ctx, "call", "method", call.FullMethod, "took", time.Since(began), "err", err)
		return response, err
	}
}

// listen opens the socket, for root and our own user only.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for virt-handler: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the socket: %w", err), l.Close())
	}
	return l, nil
}

// sayGoodbye lets the watchers have the last message, but does not wait for one who hangs.
func sayGoodbye(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	timer := time.AfterFunc(farewell, server.Stop)
	<-done
	timer.Stop()
}
