package podfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs/podfstest"
	"github.com/virtkit/virtkit/pkg/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pod = types.UID("0d9d4d5e-7a33-4b9c-8c0f-3a4f0f8d2b11")

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// volume makes the run volume of the pod.
func volume(t *testing.T) (pods string, run *Run) {
	t.Helper()
	pods = filepath.Join(t.TempDir(), strings.Repeat("long-", 30)) // no socket's path would fit
	check(t, os.MkdirAll(RunPath(pods, pod), 0o755))
	run, err := OpenRun(pods, pod)
	check(t, err)
	t.Cleanup(func() { run.Close() })
	return pods, run
}

// listen makes a socket in a directory whatever the length of its path.
func listen(t *testing.T, dir, name string) net.Listener {
	t.Helper()
	d, err := os.Open(dir)
	check(t, err)
	defer d.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	check(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestDial(t *testing.T) {
	pods, run := volume(t)
	dir, outside := RunPath(pods, pod), t.TempDir()
	listen(t, dir, "good.sock")
	listen(t, outside, "evil.sock")
	check(t, os.Symlink(filepath.Join(outside, "evil.sock"), filepath.Join(dir, "link.sock")))
	check(t, os.Symlink("good.sock", filepath.Join(dir, "inner.sock")))
	check(t, os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600))
	listen(t, dir, "dead.sock").Close()

	conn, err := run.Dial(t.Context(), "good.sock")
	check(t, err)
	conn.Close()
	for name, want := range map[string]error{
		"link.sock": nil, "inner.sock": nil, "../run/../../x.sock": unix.EXDEV,
		"none.sock": fs.ErrNotExist, "dead.sock": unix.ECONNREFUSED, "file.sock": nil,
	} {
		conn, err := run.Dial(t.Context(), name)
		if err == nil {
			conn.Close()
			t.Errorf("%s: connected", name)
		} else if want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestReadAndTail(t *testing.T) {
	pods, run := volume(t)
	dir := RunPath(pods, pod)
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("secret"), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "log"), []byte("0123456789"), 0o600))
	check(t, os.Symlink(secret, filepath.Join(dir, "link")))
	check(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))

	for n, want := range map[int64]string{3: "789", 10: "0123456789", 99: "0123456789"} {
		if got, err := run.Tail("log", n); err != nil || string(got) != want {
			t.Errorf("tail %d: %q, %v; want %q", n, got, err, want)
		}
	}
	if got, err := run.Read("log", 10); err != nil || string(got) != "0123456789" {
		t.Errorf("read: %q, %v", got, err)
	}
	if _, err := run.Read("log", 9); err == nil {
		t.Error("read more than the limit")
	}
	for _, name := range []string{"link", "fifo", "../../escape", "."} {
		if got, err := run.Read(name, 100); err == nil {
			t.Errorf("read %s: %q", name, got)
		}
	}
}

func TestWaitSocket(t *testing.T) {
	pods := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- waitSocket(ctx, pods, pod, "x.sock", time.Hour) }() // it notices by notification alone
	check(t, os.MkdirAll(RunPath(pods, pod), 0o755))
	check(t, os.WriteFile(filepath.Join(RunPath(pods, pod), "other"), nil, 0o600))
	select {
	case err := <-done:
		t.Fatalf("returned too early: %v", err)
	default:
	}
	listen(t, RunPath(pods, pod), "x.sock")
	check(t, <-done)
	check(t, WaitSocket(ctx, pods, pod, "x.sock"))

	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := WaitSocket(stopped, pods, pod, "y.sock"); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

func TestInPod(t *testing.T) {
	other := "11111111-2222-3333-4444-555555555555"
	for cgroup, want := range map[string]bool{
		"0::/kubepods/burstable/pod" + string(pod) + "/0123\n":                                        true,
		"12:memory:/node1/kubepods/pod" + string(pod) + "/0123\n0::/\n":                               true,
		"0::/../../pod" + string(pod) + "/0123\n":                                                     true,
		"0::/kubepods.slice/kubepods-burstable-pod0d9d4d5e_7a33_4b9c_8c0f_3a4f0f8d2b11.slice/cri-1\n": true,
		"0::/kubepods/burstable/pod" + other + "/0123\n":                                              false,
		"0::/pod" + string(pod) + "x/1\n":                                                             false,
		"0::/user.slice\n":                                                                            false,
		"pod" + string(pod) + ":x:/other\n":                                                           false,
		"":                                                                                            false,
	} {
		if got := inPod([]byte(cgroup), pod); got != want {
			t.Errorf("%q: %t", cgroup, got)
		}
	}
	if inPod([]byte("0::/kubepods/pod/x"), "") {
		t.Error("no UID matches a directory")
	}
}

// fakeProcess is this test's process with another root.
func fakeProcess(t *testing.T) (p *Process, root string) {
	t.Helper()
	dir := t.TempDir()
	proc, root := filepath.Join(dir, "proc"), filepath.Join(dir, "root")
	own := filepath.Join(proc, fmt.Sprint(os.Getpid()))
	check(t, os.MkdirAll(own, 0o755))
	check(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	check(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	check(t, os.Symlink(root, filepath.Join(own, "root")))
	check(t, os.WriteFile(filepath.Join(own, "cgroup"), []byte("0::/pod"+string(pod)+"/c"), 0o644))
	pods, run := volume(t)
	l, err := podfstest.Launcher(pods, root, run.Root.Name(), pod)
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	conn, err := run.Dial(t.Context(), names.SocketLauncher)
	check(t, err)
	defer conn.Close()
	if _, err := Peer(conn, proc, pods, "another-pod"); err == nil || !strings.Contains(err.Error(), "not in pod") {
		t.Errorf("peer of another pod: %v", err)
	}
	p, err = Peer(conn, proc, pods, pod)
	check(t, err)
	t.Cleanup(p.Close)
	return p, root
}

func TestNetns(t *testing.T) {
	p, root := fakeProcess(t)
	own, first := filepath.Join(p.proc.Name(), "ns"), filepath.Join(filepath.Dir(p.proc.Name()), "1/ns")
	for _, dir := range []string{own, first} {
		check(t, os.MkdirAll(dir, 0o755))
	}
	check(t, os.WriteFile(filepath.Join(root, "net"), nil, 0o600))
	check(t, os.Symlink(filepath.Join(root, "net"), filepath.Join(own, "net")))
	check(t, os.WriteFile(filepath.Join(first, "net"), nil, 0o600))
	f, err := p.Netns()
	check(t, err)
	f.Close()
	check(t, os.Remove(filepath.Join(first, "net")))
	check(t, os.Symlink(filepath.Join(root, "net"), filepath.Join(first, "net")))
	if f, err := p.Netns(); err == nil {
		f.Close()
		t.Error("gave out the node's own network namespace")
	}
}

func TestEnsureTun(t *testing.T) {
	p, root := fakeProcess(t)
	for range 2 {
		check(t, p.EnsureTun())
	}
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(root, "dev/net/tun"), &stat))
	if stat.Mode != unix.S_IFCHR|0o666 || stat.Rdev != unix.Mkdev(10, 200) {
		t.Errorf("mode %o, device %x", stat.Mode, stat.Rdev)
	}
}

func TestGiveDevice(t *testing.T) {
	p, root := fakeProcess(t)
	block := filepath.Join(root, "dev/disk")
	check(t, unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	check(t, os.WriteFile(filepath.Join(root, "dev/file"), nil, 0o600))
	outside := filepath.Join(t.TempDir(), "outside")
	check(t, os.WriteFile(outside, nil, 0o600))
	check(t, os.Symlink(outside, filepath.Join(root, "dev/link")))
	granted := Devices{Block(unix.Mkdev(7, 250)): everyAccess}
	for range 2 {
		check(t, p.GiveDevice("/dev/disk", granted))
	}
	var stat unix.Stat_t
	check(t, unix.Stat(block, &stat))
	if stat.Uid != names.User || stat.Gid != names.Group {
		t.Errorf("owner is %d:%d", stat.Uid, stat.Gid)
	}
	// The disk of the node that somebody with CAP_MKNOD has made a node of, a way out of /dev, and a file there.
	check(t, unix.Mknod(filepath.Join(root, "dev/stolen"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 251))))
	check(t, os.MkdirAll(filepath.Join(root, "claim"), 0o755))
	check(t, unix.Mknod(filepath.Join(root, "claim/disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	check(t, os.Symlink("/claim", filepath.Join(root, "dev/elsewhere")))
	for _, name := range []string{
		"/dev/file", "/dev/link", "/dev/none", "/dev/stolen", "/dev/elsewhere/disk", "/dev/../claim/disk",
		"/claim/disk",
	} {
		if err := p.GiveDevice(name, granted); err == nil {
			t.Errorf("%s was handed over", name)
		}
	}
	if err := p.GiveDevice("/dev/none", granted); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing device: %v", err)
	}
}

func TestResolv(t *testing.T) {
	p, root := fakeProcess(t)
	check(t, os.WriteFile(filepath.Join(root, "etc/resolv.conf"),
		[]byte("search a\nnameserver 10.0.0.1\nnameserver x\nnameserver fd00::a\noptions\n"+
			"search ns.svc.cluster.local svc.cluster.local\n"), 0o644))
	got, err := p.Resolv()
	if err != nil || !slices.Equal(got.Search, []string{"ns.svc.cluster.local", "svc.cluster.local"}) ||
		!slices.Equal(got.Nameservers, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::a")}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAlive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	check(t, cmd.Start())
	dir, err := os.OpenFile(fmt.Sprintf("/proc/%d", cmd.Process.Pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	check(t, err)
	p := &Process{PID: cmd.Process.Pid, proc: dir}
	defer p.Close()
	if !p.Alive() {
		t.Error("a running process is not alive")
	}
	check(t, cmd.Process.Kill())
	deadline := time.Now().Add(time.Minute)
	for p.Alive() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if p.Alive() {
		t.Error("a zombie is alive")
	}
	_ = cmd.Wait() // killed
	if p.Alive() {
		t.Error("a process that is gone is alive")
	}
}
