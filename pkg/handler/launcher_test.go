package handler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/podfs/podfstest"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	nodeName = "node1"
	podUID   = types.UID("0d9d4d5e-7a33-4b9c-8c0f-3a4f0f8d2b11")
	vmiUID   = types.UID("6b6a2ad4-9b9c-4ac1-8a3e-2b41a0e9a7d1")
)

var vmiKey = types.NamespacedName{Namespace: "default", Name: "demo"}

// fakeLauncher serves a guest that does what the test says.
type fakeLauncher struct {
	launcherpb.UnimplementedLauncherServer
	server *grpc.Server

	mu        sync.Mutex
	state     *launcherpb.GuestState
	changed   chan struct{}
	startErrs []error // given one by one before Start succeeds
	starts    []*launcherpb.StartRequest
	shutdowns []time.Duration
	thaws     []thaw  // what was asked for
	thawErrs  []error // given one by one before Unfreeze succeeds
}

func (l *fakeLauncher) set(change func(*launcherpb.GuestState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = proto.CloneOf(l.state)
	change(l.state)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLauncher) lifecycle(to launcherpb.Lifecycle, reason string) {
	l.set(func(s *launcherpb.GuestState) { s.Lifecycle, s.Reason = to, reason })
}

func (l *fakeLauncher) counts() (starts int, shutdowns []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.starts), append([]time.Duration(nil), l.shutdowns...)
}

func (l *fakeLauncher) Start(_ context.Context, r *launcherpb.StartRequest) (*launcherpb.StartResponse, error) {
	l.mu.Lock()
	l.starts = append(l.starts, r)
	if len(l.startErrs) > 0 {
		err := l.startErrs[0]
		l.startErrs = l.startErrs[1:]
		l.mu.Unlock()
		return nil, err
	}
	state := l.state
	l.mu.Unlock()
	if state.Lifecycle == launcherpb.Lifecycle_LIFECYCLE_NONE {
		l.set(func(s *launcherpb.GuestState) {
			s.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_RUNNING
			s.Machine, s.Emulation = "pc-q35-10.0", true
			s.MemoryAtBoot, s.MemoryCurrent = 128<<20, 128<<20
			s.VolumeTargets = map[string]string{"root": "vda"}
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &launcherpb.StartResponse{State: l.state}, nil
}

func (l *fakeLauncher) Shutdown(_ context.Context, r *launcherpb.ShutdownRequest,
) (*launcherpb.ShutdownResponse, error) {
	l.mu.Lock()
	l.shutdowns = append(l.shutdowns, r.GracePeriod.AsDuration())
	l.mu.Unlock()
	return &launcherpb.ShutdownResponse{}, nil
}

func (l *fakeLauncher) Watch(_ *launcherpb.WatchRequest, stream grpc.ServerStreamingServer[launcherpb.GuestState],
) error {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		if err := stream.Send(state); err != nil {
			return err
		}
		if state.GetLifecycle().Final() {
			return nil
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// world is a node with one pod and an API server that has its VMI.
type world struct {
	t        *testing.T
	node     *Node
	client   client.Client
	events   *record.FakeRecorder
	launcher *fakeLauncher
	proc     string // of the launcher
	rootfs   string

	mu     sync.Mutex
	now    time.Time
	writes int
}

func newVMI() *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmiKey.Namespace, Name: vmiKey.Name, UID: vmiUID,
			Labels:     map[string]string{v1.NodeNameLabel: nodeName},
			Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
		},
		Spec: v1.VirtualMachineInstanceSpec{
			Volumes: []v1.Volume{
				{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "disk"}}},
			},
		},
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Scheduled, NodeName: nodeName, ActivePods: map[types.UID]string{podUID: nodeName},
		},
	}
}

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmiKey.Namespace, Name: "virt-launcher-demo-abcde", UID: podUID,
			Labels: map[string]string{names.LabelComponent: names.VirtLauncher, v1.CreatedByLabel: string(vmiUID)},
		},
		Spec: corev1.PodSpec{
			NodeName:   nodeName,
			Containers: []corev1.Container{{Name: names.ContainerCompute, Image: "launcher:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), events: record.NewFakeRecorder(100),
		proc: filepath.Join(dir, "proc", fmt.Sprint(os.Getpid())), rootfs: filepath.Join(dir, "rootfs"),
	}
	w.node = NewNode(nodeName, filepath.Join(dir, "pods"), filepath.Join(dir, "proc"), filepath.Join(dir, "state"),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	w.node.Now = w.clock
	for _, d := range []string{
		w.node.PodsDir, filepath.Join(w.proc, "ns"), w.rootfs + "/dev", w.rootfs + "/usr/bin", w.rootfs + "/etc",
	} {
		w.must(os.MkdirAll(d, 0o755))
	}
	w.must(os.Symlink("/proc/self/ns/net", filepath.Join(w.proc, "ns/net")))
	w.must(os.Symlink(w.rootfs, filepath.Join(w.proc, "root")))
	w.must(writeFile(filepath.Join(w.proc, "cgroup"), "0::/kubepods/burstable/pod"+string(podUID)+"/cafe\n"))
	w.must(writeFile(filepath.Join(w.proc, "stat"), "1 (virt-launcher) S 0 0"))
	w.must(os.WriteFile(w.rootfs+"/usr/bin/qemu-system-x86_64", nil, 0o755))
	if len(objects) == 0 {
		objects = []client.Object{newVMI(), newPod()}
	}
	w.client = fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(&v1.VirtualMachineInstance{}).
		// as the API server has
		WithIndex(&corev1.Pod{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			w.mu.Lock()
			w.writes++
			w.mu.Unlock()
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) statusWrites() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// startLauncher makes the launcher's socket appear.
func (w *world) startLauncher(errs ...error) {
	w.t.Helper()
	w.startLauncherOf(podUID, errs...)
}

// listenAs listens on the socket of a pod's launcher. The test may be the launcher of several pods.
func (w *world) listenAs(pod types.UID) net.Listener {
	w.t.Helper()
	run := podfs.RunPath(w.node.PodsDir, pod)
	w.must(os.MkdirAll(run, 0o755))
	listener, err := podfstest.Launcher(w.node.PodsDir, w.rootfs, run, pod)
	w.must(err)
	// The mark of this pod's container has taken the place of the others'.
	marks, err := filepath.Glob(filepath.Join(w.node.PodsDir, "*", "containers", names.ContainerCompute, "*"))
	w.must(err)
	for _, mark := range marks {
		w.must(os.Remove(mark))
		w.must(os.Link(filepath.Join(w.rootfs, "dev/termination-log"), mark))
	}
	return listener
}

func (w *world) startLauncherOf(pod types.UID, errs ...error) {
	w.t.Helper()
	w.launcher = &fakeLauncher{
		server: grpc.NewServer(), changed: make(chan struct{}), startErrs: errs,
		state: &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_NONE},
	}
	l := w.launcher
	listener := w.listenAs(pod)
	launcherpb.RegisterLauncherServer(l.server, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = l.server.Serve(listener) }()
	w.t.Cleanup(func() { l.server.Stop(); <-done })
}

// running is a reconciler at work.
type running struct {
	*Reconciler
	world *world
	queue chan types.NamespacedName
	stop  func()
}

// startHandler runs a reconciler with a queue of its own until the test ends or stop is called.
func (w *world) startHandler() *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{world: w, queue: make(chan types.NamespacedName, 1000)}
	r.Reconciler = &Reconciler{
		Cached: w.client, Incoming: w.client, Live: w.client, Events: w.events, Node: w.node, Sessions: ctx,
		Enqueue: func(key types.NamespacedName, _ time.Duration) { r.queue <- key },
	}
	frame := r.frame()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case key := <-r.queue:
				if _, err := frame.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil &&
					ctx.Err() == nil {
					w.t.Errorf("reconcile: %v", err)
				}
			}
		}
	}()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			<-done
			r.Close()
		})
	}
	w.t.Cleanup(r.stop)
	r.kick()
	return r
}

// kick is what an event of the API does.
func (r *running) kick() { r.queue <- vmiKey }

// vmi reads the VMI.
func (w *world) vmi() *v1.VirtualMachineInstance {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	w.must(w.client.Get(context.Background(), vmiKey, vmi))
	return vmi
}

// eventually waits for a condition.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			w.t.Fatalf("never happened: %s; VMI: %+v", what, w.vmi().Status)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) eventuallyPhase(phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	w.t.Helper()
	w.eventually("phase "+string(phase), func() bool { return w.vmi().Status.Phase == phase })
	return w.vmi()
}

// wantEvents takes events until all reasons were seen, in order.
func (w *world) wantEvents(reasons ...string) {
	w.t.Helper()
	var got []string
	for _, want := range reasons {
		for found := false; !found; {
			select {
			case e := <-w.events.Events:
				got = append(got, e)
				found = strings.Fields(e)[1] == want
			case <-time.After(time.Minute):
				w.t.Fatalf("no event %s; got %q", want, got)
			}
		}
	}
}

func (w *world) noEvents() {
	w.t.Helper()
	select {
	case e := <-w.events.Events:
		w.t.Errorf("unexpected event %q", e)
	default:
	}
}

func condition(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType,
) v1.VirtualMachineInstanceCondition {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.VirtualMachineInstanceCondition{}
}
