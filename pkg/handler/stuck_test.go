package handler

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// hungMount mounts a file system that answers nothing, as NFS does without its server. release ends it, and with it all
// that waits for it; it may be called again.
func hungMount(t *testing.T, at string) (release func()) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := unix.Mount("hung", at, "fuse", 0, options); err != nil {
		server.Close()
		t.Skipf("no FUSE here: %v", err)
	}
	var once sync.Once
	release = func() {
		once.Do(func() {
			if err := unix.Unmount(at, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
			server.Close() // which fails all requests
		})
	}
	t.Cleanup(release)
	return release
}

const (
	secondPod = types.UID("7f0e9c52-1b7e-4b0e-9a53-6b7d53ad1c33")
	thirdPod  = types.UID("3f6f3b1c-6f0c-4f38-8d5a-0ce1f5a3ad44")
)

var (
	secondKey = types.NamespacedName{Namespace: "default", Name: "second"}
	thirdKey  = types.NamespacedName{Namespace: "default", Name: "third"}
)

// otherVMI is another one of the node, with its launcher's pod.
func otherVMI(name string, uid types.UID) (*v1.VirtualMachineInstance, *corev1.Pod) {
	vmi, pod := newVMI(), newPod()
	vmi.Name, vmi.UID, vmi.Status.ActivePods = name, "of-"+uid, map[types.UID]string{uid: nodeName}
	pod.Name, pod.UID, pod.Labels[v1.CreatedByLabel] = "virt-launcher-"+name, uid, string(vmi.UID)
	return vmi, pod
}

// hungWorld has a VMI whose hostDisk lies on storage that does not answer, and two without.
func hungWorld(t *testing.T) (w *world, release func()) {
	hung := newVMI()
	hung.Spec.Volumes = append(hung.Spec.Volumes, v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{
		HostDisk: &v1.HostDisk{Path: "/data/disk.img", Type: v1.HostDiskExists},
	}})
	second, pod2 := otherVMI(secondKey.Name, secondPod)
	third, pod3 := otherVMI(thirdKey.Name, thirdPod)
	w = newWorld(t, hung, newPod(), second, pod2, third, pod3)
	w.node.stepLimit, w.node.endLimit = 100*time.Millisecond, 200*time.Millisecond
	release = hungMount(t, filepath.Join(w.rootfs, names.ClaimsDir, "nfs"))
	var groups strings.Builder // the test is the launcher of all pods
	for _, uid := range []types.UID{podUID, secondPod, thirdPod} {
		fmt.Fprintf(&groups, "0::/kubepods/burstable/pod%s/cafe\n", uid)
	}
	w.must(writeFile(filepath.Join(w.proc, "cgroup"), groups.String()))
	return w, release
}

func (w *world) get(key types.NamespacedName) *v1.VirtualMachineInstance {
	w.t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	w.must(w.client.Get(context.Background(), key, vmi))
	return vmi
}

// Storage that does not answer holds up the VMI that lies on it, which says so, and no other: sessions of others
// start and end.
func TestHungStorageHoldsUpItsOwnVMI(t *testing.T) {
	w, release := hungWorld(t)
	w.startLauncher()
	w.startLauncherOf(secondPod)
	h := w.startHandler()
	const why = `volume "nfs": the storage does not answer; it is tried again once it does`
	w.eventually("the VMI says why it waits", func() bool {
		c := condition(w.get(vmiKey), v1.VirtualMachineInstanceSynchronized)
		return c.Status == corev1.ConditionFalse && c.Message == why
	})
	if n := w.node.steps.count(); n != 1 {
		t.Errorf("%d steps are stuck, want 1", n)
	}
	h.queue <- secondKey
	w.eventually("the other VMI runs", func() bool { return w.get(secondKey).Status.Phase == v1.Running })

	// The hung one is removed, whose session cannot end, then the other one, and one more is started.
	remove := func(key types.NamespacedName, pod types.UID) {
		vmi := w.get(key)
		vmi.Finalizers = nil
		w.must(w.client.Update(context.Background(), vmi))
		w.must(w.client.Delete(context.Background(), vmi))
		h.queue <- key
		w.eventually("the session of "+key.Name+" is gone", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.sessions[key] == nil && h.ending[pod] == nil
		})
	}
	remove(vmiKey, podUID)
	remove(secondKey, secondPod)
	w.startLauncherOf(thirdPod)
	h.queue <- thirdKey
	w.eventually("one more VMI runs", func() bool { return w.get(thirdKey).Status.Phase == v1.Running })
	if n := w.node.steps.count(); n != 1 {
		t.Errorf("%d steps are stuck, want 1", n)
	}
	release()
	w.eventually("the step has returned", func() bool { return w.node.steps.count() == 0 })
}

// A guest starts once its storage answers again.
func TestHungStorageComesBack(t *testing.T) {
	w, release := hungWorld(t)
	w.startLauncher()
	h := w.startHandler()
	w.eventually("the step is stuck", func() bool { return w.node.steps.count() == 1 })
	h.mu.Lock()
	s := h.sessions[vmiKey]
	h.mu.Unlock()
	for range 3 { // tries of the session do not add to it
		err := s.do(context.Background(), volumeStep("nfs"), func() error {
			t.Error("begun a second time")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("a second try: %v", err)
		}
	}
	release()
	w.must(os.WriteFile(filepath.Join(w.rootfs, names.ClaimsDir, "nfs", "disk.img"), nil, 0o600))
	w.eventuallyPhase(v1.Running)
}

// virt-handler ends although a session cannot.
func TestHandlerEndsBesideHungStorage(t *testing.T) {
	w, release := hungWorld(t)
	w.node.stepLimit = time.Hour
	w.startLauncher()
	h := w.startHandler()
	w.eventually("the launcher is connected", func() bool { _, _, err := h.Launcher(vmiKey); return err == nil })
	ended := make(chan struct{})
	go func() { defer close(ended); h.stop() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("virt-handler waits for storage that does not answer")
		release()
		<-ended
	}
}

// One pod cannot have more steps stuck than its share, and leaves those of others alone.
func TestStuckStepsBounded(t *testing.T) {
	w := newWorld(t)
	w.node.stepLimit = time.Millisecond
	hang := make(chan struct{})
	of := func(pod types.UID) *session { return &session{node: w.node, log: w.node.Log, target: target{Pod: pod}} }
	var began sync.WaitGroup
	for n := range 2 * stuckPerPod {
		began.Go(func() {
			err := of(podUID).do(context.Background(), volumeStep(fmt.Sprint(n)), func() error { <-hang; return nil })
			if err == nil {
				t.Errorf("step %d has ended", n)
			}
		})
		began.Wait()
	}
	if n := w.node.steps.count(); n != stuckPerPod {
		t.Errorf("%d steps are stuck, want %d", n, stuckPerPod)
	}
	w.node.stepLimit = time.Hour // the next ones end
	if err := of(secondPod).do(context.Background(), volumeStep("0"), func() error { return nil }); err != nil {
		t.Errorf("a step of another pod: %v", err)
	}
	close(hang)
	w.eventually("all have returned", func() bool { return w.node.steps.count() == 0 })
	if err := of(podUID).do(context.Background(), volumeStep("0"), func() error { return nil }); err != nil {
		t.Errorf("a step after that: %v", err)
	}
}

// What a step opens too late is closed, and the launcher's process is kept as long as a step uses it.
func TestLateStep(t *testing.T) {
	w := newWorld(t)
	w.node.stepLimit = time.Millisecond
	let := make(chan struct{})
	s := &session{node: w.node, log: w.node.Log, target: target{Pod: podUID}, held: newLease(func() { close(let) })}
	read, write, err := os.Pipe()
	w.must(err)
	defer read.Close()
	hang := make(chan struct{})
	if f, err := step(context.Background(), s, "pipe", func() (*os.File, error) {
		<-hang
		return write, nil
	}); err == nil {
		t.Errorf("opened %v", f)
	}
	s.held.free()
	select {
	case <-let:
		t.Error("the process was let go below the step")
	default:
	}
	close(hang)
	<-let
	if n, err := read.Read(make([]byte, 1)); n != 0 || err == nil { // all writers are closed
		t.Errorf("%d, %v", n, err)
	}
}

// Liveness tells of a pass that does not end, and of nothing else.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	h, p := &handler{log: w.node.Log, node: w.node}, &passes{}
	ready := make(chan struct{})
	get := func(path string) int {
		answer := httptest.NewRecorder()
		h.health(p, ready).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer.Code
	}
	want := func(healthy, isReady bool) {
		t.Helper()
		if got := get("/healthz") == http.StatusOK; got != healthy {
			t.Errorf("healthy: %t", got)
		}
		if got := get("/readyz") == http.StatusOK; got != isReady {
			t.Errorf("ready: %t", got)
		}
	}
	want(true, false)
	close(ready)
	p.begin(vmiKey, w.clock())
	want(true, true)
	w.mu.Lock()
	w.now = w.now.Add(passLimit + time.Second)
	w.mu.Unlock()
	want(false, true)
	p.end(vmiKey)
	want(true, true)
}

// A launcher that takes connections and never answers holds up its own VMI only, and its session ends at once.
func TestSilentLauncherHoldsUpItsOwnVMI(t *testing.T) {
	second, pod := otherVMI(secondKey.Name, secondPod)
	w := newWorld(t, newVMI(), newPod(), second, pod)
	groups := fmt.Sprintf("0::/kubepods/pod%s/cafe\n0::/kubepods/pod%s/cafe\n", podUID, secondPod)
	w.must(writeFile(filepath.Join(w.proc, "cgroup"), groups))
	defer w.listenAs(podUID).Close()
	w.startLauncherOf(secondPod)
	h := w.startHandler()
	w.eventually("the silent launcher is connected", func() bool { _, _, err := h.Launcher(vmiKey); return err == nil })
	h.queue <- secondKey
	w.eventually("the other VMI runs", func() bool { return w.get(secondKey).Status.Phase == v1.Running })
	h.mu.Lock()
	s := h.sessions[vmiKey]
	h.mu.Unlock()
	if !s.end(20 * time.Second) {
		t.Error("the session waits for the launcher")
	}
}
