package podfs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/handler/podfs/podfstest"
	"github.com/virtkit/virtkit/pkg/names"
)

// podWorld is a pod of which this test's process is one.
type podWorld struct{ proc, own, root, pods, run string }

func newPodWorld(t *testing.T) podWorld {
	t.Helper()
	dir := t.TempDir()
	w := podWorld{proc: filepath.Join(dir, "proc"), root: filepath.Join(dir, "root"), pods: filepath.Join(dir, "pods")}
	w.own, w.run = filepath.Join(w.proc, fmt.Sprint(os.Getpid())), RunPath(w.pods, pod)
	for _, d := range []string{w.own, filepath.Join(w.root, "dev"), w.run} {
		check(t, os.MkdirAll(d, 0o755))
	}
	check(t, os.Symlink(w.root, filepath.Join(w.own, "root")))
	check(t, os.WriteFile(filepath.Join(w.own, "cgroup"), []byte("0::/kubepods/pod"+string(pod)+"/c\n"), 0o644))
	return w
}

// peer connects to a launcher's socket that a user serves.
func (w podWorld) peer(t *testing.T, user int) (*Process, error) {
	t.Helper()
	check(t, os.RemoveAll(filepath.Join(w.run, names.SocketLauncher)))
	l, err := podfstest.Listen(w.run, names.SocketLauncher, user)
	check(t, err)
	defer l.Close()
	return w.dial(t)
}

func (w podWorld) dial(t *testing.T) (*Process, error) {
	t.Helper()
	run, err := OpenRun(w.pods, pod)
	check(t, err)
	defer run.Close()
	conn, err := run.Dial(t.Context(), names.SocketLauncher)
	check(t, err)
	defer conn.Close()
	p, err := Peer(conn, w.proc, w.pods, pod)
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

// Another container of the launcher's pod that makes the launcher's socket is not taken for the launcher, whoever it is
// and whatever it puts where the launcher's container has the file of its termination message.
func TestPeerIsTheLauncher(t *testing.T) {
	w := newPodWorld(t)
	log := filepath.Join(w.root, "dev/termination-log")
	refused := func(what, want string, user int) {
		t.Helper()
		if p, err := w.peer(t, user); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", what, p, err, want)
		}
	}
	refused("a pod that the kubelet has made no container of", "is not in container compute", names.User)
	check(t, podfstest.MarkContainer(w.pods, w.root, pod, "sidecar"))
	refused("another container", "is not in container compute", names.User)
	// The launcher is there, too, with a file of its own.
	other := filepath.Join(filepath.Dir(w.root), "launcher")
	check(t, podfstest.MarkContainer(w.pods, other, pod, names.ContainerCompute))
	refused("another container beside the launcher's", "is not in container compute", names.User)
	for what, fake := range map[string]func() error{
		"a link": func() error { return os.Symlink(filepath.Join(other, "dev/termination-log"), log) },
		"a file": func() error { return os.WriteFile(log, nil, 0o666) },
		"a FIFO": func() error { return unix.Mkfifo(log, 0o666) },
	} {
		check(t, os.Remove(log))
		check(t, fake())
		refused(what, "is not in container compute", names.User)
	}
	check(t, podfstest.MarkContainer(w.pods, w.root, pod, names.ContainerCompute))
	refused("another user", "is user 0's", 0)
	if _, err := w.peer(t, names.User); err != nil {
		t.Errorf("the launcher: %v", err)
	}
	check(t, os.WriteFile(filepath.Join(w.own, "cgroup"), []byte("0::/kubepods/podx/c\n"), 0o644))
	refused("another pod", "is not in pod", names.User)
}

// Whoever made the socket and has ended is not taken for the process that has its number now.
func TestPeerHasEnded(t *testing.T) {
	w := newPodWorld(t)
	check(t, podfstest.MarkContainer(w.pods, w.root, pod, names.ContainerCompute))
	// A process makes the socket, leaves it open to this one, and ends.
	if os.Getenv("PODFS_TEST_SOCKET") != "" {
		l, err := podfstest.Listen(os.Getenv("PODFS_TEST_SOCKET"), names.SocketLauncher, names.User)
		check(t, err)
		f, err := l.(*net.UnixListener).File()
		check(t, err)
		check(t, unix.Sendmsg(3, nil, unix.UnixRights(int(f.Fd())), nil, 0))
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeerHasEnded$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "PODFS_TEST_SOCKET="+w.run), []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, 0)
	check(t, err)
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	check(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	check(t, err)
	defer unix.Close(fds[0])
	if _, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD); errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("the kernel gives no handles on peers")
	}
	// Its number is one of the launcher's container now, as far as /proc says.
	check(t, os.Rename(w.own, filepath.Join(w.proc, fmt.Sprint(cmd.Process.Pid))))
	if p, err := w.dial(t); err == nil {
		t.Errorf("taken for process %d", p.PID)
	}
}
