package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/disk"
)

// fakeLibvirtd makes its socket and stays.
const fakeLibvirtd = `#!/bin/sh
: > "$XDG_RUNTIME_DIR/libvirt/libvirt-sock"
exec sleep 1000
`

// life is a launcher that runs in the test, on a hypervisor in memory.
type life struct {
	t       *testing.T
	options Options
	memory  *memory
	client  pb.LauncherClient
	sigterm context.CancelFunc
	err     chan error
}

func begin(t *testing.T) *life {
	t.Helper()
	dir := t.TempDir()
	libvirtd := filepath.Join(dir, "libvirtd")
	if err := os.WriteFile(libvirtd, []byte(fakeLibvirtd), 0o755); err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, memory: newMemory(), err: make(chan error, 1)}
	l.options = PodOptions()
	l.options.Namespace, l.options.Name, l.options.UID = "default", "demo", "uid-1"
	l.options.Node = "node-of-the-test"
	run, err := os.MkdirTemp("", "vk") //nolint:usetesting // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(run); err != nil {
			t.Error(err)
		}
	})
	l.options.RunDir = filepath.Join(run, "run")
	l.options.Disks = disk.Dirs{
		Disks: filepath.Join(dir, "disks"), Claims: filepath.Join(dir, "claims"),
		BlockDevices: filepath.Join(dir, "block"), Hotplug: filepath.Join(dir, "hotplug"),
		Resume: filepath.Join(dir, "resume"),
	}
	for _, d := range []string{
		filepath.Join(l.options.RunDir, "rt/libvirt"), l.options.Disks.Disks, l.options.Disks.Hotplug,
		filepath.Join(l.options.Disks.Claims, "data"),
	} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.options.TerminationLog = filepath.Join(dir, "termination-log")
	l.options.Libvirtd = libvirtd
	l.options.KVMDevice = filepath.Join(dir, "no-kvm")
	l.options.GracePeriod = 10 * time.Second
	l.options.Log = slog.New(slog.DiscardHandler)
	l.options.Connect = func(ctx context.Context, _ string) (hypervisor.Connection, error) { return l.memory.dial(ctx) }
	ctx, cancel := context.WithCancel(t.Context())
	l.sigterm = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.err <- Run(ctx, l.options)
	}()
	t.Cleanup(func() {
		// Each launcher waits for any child of the process: one that is left would take another's.
		cancel()
		l.memory.endAny()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the launcher does not end")
		}
	})
	socket := filepath.Join(l.options.RunDir, names.SocketLauncher)
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		// The socket has its name before it is listened at.
		if conn, err := net.Dial("unix", socket); err == nil {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the launcher does not listen")
		}
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true))) // the socket is there before somebody listens
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l.client = pb.NewLauncherClient(conn)
	return l
}

func demo() *v1.VirtualMachineInstance {
	memory := resource.MustParse("128Mi")
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: "uid-1"}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc"},
		}}},
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
	}}}
	return vmi
}

func (l *life) start(vmi *v1.VirtualMachineInstance) (*pb.StartResponse, error) {
	l.t.Helper()
	b, err := json.Marshal(vmi)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.client.Start(l.t.Context(), &pb.StartRequest{VmiJson: b}, grpc.WaitForReady(true))
}

func (l *life) mustStart() {
	l.t.Helper()
	r, err := l.start(demo())
	if err != nil {
		l.t.Fatal(err)
	}
	if r.State.Lifecycle != runs || r.State.VolumeTargets["data"] != "vda" {
		l.t.Fatal(r.State)
	}
}

// watch gives the states that arrive until the launcher is gone.
func (l *life) watch() <-chan *pb.GuestState {
	l.t.Helper()
	stream, err := l.client.Watch(l.t.Context(), &pb.WatchRequest{}, grpc.WaitForReady(true))
	if err != nil {
		l.t.Fatal(err)
	}
	out := make(chan *pb.GuestState, 100)
	go func() {
		defer close(out)
		for {
			s, err := stream.Recv()
			if err != nil {
				return
			}
			out <- s
		}
	}()
	return out
}

// last drains the states and gives the last.
func last(states <-chan *pb.GuestState) (s *pb.GuestState) {
	for next := range states {
		s = next
	}
	return s
}

func (l *life) wait() (message string, err error) {
	l.t.Helper()
	select {
	case err := <-l.err:
		b, readErr := os.ReadFile(l.options.TerminationLog)
		if readErr != nil {
			l.t.Fatal(readErr)
		}
		return string(b), err
	case <-time.After(time.Minute):
		l.t.Fatal("the launcher does not end")
		return "", nil
	}
}

func TestRunToShutdown(t *testing.T) {
	defer goleak.VerifyNone(t,
		goleak.IgnoreTopFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"))
	l := begin(t)
	states := l.watch()
	l.mustStart()
	if !strings.Contains(l.memory.xml, `<domain type="qemu">`) {
		t.Errorf("without KVM the domain is %s", l.memory.xml)
	}
	// Again: nothing new.
	l.memory.createErr = errors.New("created twice")
	l.mustStart()
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("pause while paused: %v", err)
	}
	if _, err := l.client.Unpause(t.Context(), &pb.UnpauseRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := l.client.Shutdown(t.Context(),
		&pb.ShutdownRequest{GracePeriod: durationpb.New(time.Minute)}); err != nil {
		t.Error(err)
	}
	if s := last(states); s.Lifecycle != shutOff {
		t.Errorf("the last state is %v", s)
	}
	if message, err := l.wait(); err != nil || message != `{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"shutdown"}` {
		t.Errorf("%v, %s", err, message)
	}
}

func TestRunToCrash(t *testing.T) {
	l := begin(t)
	states := l.watch()
	l.mustStart()
	l.memory.end(hypervisor.End{Outcome: hypervisor.Crashed, Reason: "failed"})
	if s := last(states); s.Lifecycle != crashed {
		t.Errorf("the last state is %v", s)
	}
	if message, err := l.wait(); err == nil || !strings.Contains(message, "CRASHED") {
		t.Errorf("%v, %s", err, message)
	}
}

func TestSIGTERM(t *testing.T) {
	l := begin(t)
	l.mustStart()
	l.sigterm()
	if message, err := l.wait(); err != nil || message != `{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"terminated"}` {
		t.Errorf("%v, %s", err, message)
	}
}

func TestSIGTERMBeforeStart(t *testing.T) {
	l := begin(t)
	l.watch()
	l.sigterm()
	if message, err := l.wait(); err != nil || !strings.Contains(message, names.ReasonTerminated) {
		t.Errorf("%v, %s", err, message)
	}
}

func TestStartErrors(t *testing.T) {
	l := begin(t)
	other := demo()
	other.UID = "uid-2"
	noMemory := demo()
	noMemory.Spec.Domain.Memory = nil
	noClaim := demo()
	noClaim.Spec.Volumes[0].Name, noClaim.Spec.Domain.Devices.Disks[0].Name = "absent", "absent"
	for _, tc := range []struct {
		name string
		vmi  *v1.VirtualMachineInstance
		err  error
		code codes.Code
		want string
	}{
		{
			"another VMI", other, nil, codes.InvalidArgument,
			"this is the launcher of default/demo (uid-1), not of default/demo (uid-2)",
		},
		{"no memory", noMemory, nil, codes.InvalidArgument, "spec.domain.memory.guest"},
		{"no claim", noClaim, nil, codes.FailedPrecondition, `volume "absent": claim pvc is not mounted`},
		{
			"locked", demo(), &hypervisor.LockedError{Path: filepath.Join(l.options.Disks.Claims, "data/disk.img")},
			codes.FailedPrecondition,
			`volume "data": PersistentVolumeClaim pvc is in use by another virtual machine`,
		},
		{
			"locked elsewhere", demo(), &hypervisor.LockedError{Path: "/else"}, codes.FailedPrecondition,
			"/else is in use",
		},
		{"invalid", demo(), hypervisor.ErrInvalid, codes.InvalidArgument, "invalid domain"},
		{"anything", demo(), errors.New("no memory left"), codes.Internal, "no memory left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l.memory.mu.Lock()
			l.memory.createErr = tc.err
			l.memory.mu.Unlock()
			_, err := l.start(tc.vmi)
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := l.client.Reset(t.Context(), &pb.ResetRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("reset without a guest: %v", err)
	}
	// None of them spoiled it.
	l.memory.mu.Lock()
	l.memory.createErr = nil
	l.memory.mu.Unlock()
	l.mustStart()
	l.sigterm()
	if _, err := l.wait(); err != nil {
		t.Error(err)
	}
}

func TestChildrenOfOthersAreReaped(t *testing.T) {
	c := newChildren()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.reap(ctx) }()
	if err := c.command(ctx, "sh", "-c", "exit 0"); err != nil {
		t.Error(err)
	}
	if err := c.command(ctx, "sh", "-c", "echo broken >&2; exit 3"); err == nil ||
		err.Error() != "sh: exit status 3: broken" {
		t.Errorf("%v", err)
	}
	if err := c.command(ctx, "sh", "-c", "kill -9 $$"); err == nil ||
		!strings.Contains(err.Error(), "killed by signal 9") {
		t.Errorf("%v", err)
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if err := c.command(short, "sleep", "1000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := c.command(ctx, "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	cancel()
	<-done
}

func TestCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if _, err := cut(path, 10, 4); err != nil {
		t.Errorf("no log yet: %v", err)
	}
	for _, tc := range []struct{ before, after string }{{"0123456789", "0123456789"}, {"0123456789a", "789a"}} {
		if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := cut(path, 10, 4); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != tc.after {
			t.Errorf("%q, %v", b, err)
		}
	}
}

func TestHardwareKVM(t *testing.T) {
	if hardwareKVM("/dev/null") || hardwareKVM("/no/such/device") {
		t.Error("that is no KVM")
	}
}

func TestSlim(t *testing.T) {
	if err := slim(); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]mapping{
		"55a0-55b0 r-xp 00001000 08:01 123                        /usr/bin/virt-launcher": {0x55a0, 0x55b0, true},
		"55a0-55b0 rw-p 00001000 08:01 123                        /usr/bin/virt-launcher": {0x55a0, 0x55b0, false},
		"7f00-7f10 rw-p 00000000 00:00 0":                                                 {0x7f00, 0x7f10, false},
		"7f00-7f10 r-xp 00000000 00:00 0                          [vdso]":                 {0x7f00, 0x7f10, false},
	} {
		if got, ok := parseMapping(line); !ok || got != want {
			t.Errorf("%s: %+v, %t", line, got, ok)
		}
	}
	for _, line := range []string{
		"", "Rss:                 4 kB", "VmFlags: rd ex mr mw me sd", "ProtectionKey:         0",
	} {
		if m, ok := parseMapping(line); ok {
			t.Errorf("%s: %+v", line, m)
		}
	}
}
