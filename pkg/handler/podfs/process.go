package podfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
)

// Process is the process that serves a launcher's socket. It stays the same process whatever becomes
// of its number.
type Process struct {
	PID  int
	proc *os.File // /proc/<pid>
}

// Peer finds the process at the other end of a connection and makes sure that it runs in the pod.
// proc is where procfs of the host's PID namespace is mounted.
func Peer(conn *net.UnixConn, proc string, pod types.UID) (*Process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("peer credentials: %w", credErr)
	}
	if cred.Pid <= 0 {
		return nil, errors.New("the launcher's process is not visible: virt-handler must run with hostPID: true")
	}
	dir, err := os.OpenFile(path.Join(proc, strconv.Itoa(int(cred.Pid))), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the launcher's process: %w", err)
	}
	p := &Process{PID: int(cred.Pid), proc: dir}
	cgroup, err := p.read("cgroup", 64<<10)
	if err == nil && !inPod(cgroup, pod) {
		err = fmt.Errorf("process %d that serves the launcher's socket is not in pod %s", p.PID, pod)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// inPod reports whether a line of /proc/<pid>/cgroup has a directory of the pod, as the kubelet names
// it: pod<uid> with the cgroupfs driver, …-pod<uid with underscores>.slice with systemd's.
func inPod(cgroup []byte, pod types.UID) bool {
	if pod == "" {
		return false
	}
	plain := "pod" + string(pod)
	slice := "-pod" + strings.ReplaceAll(string(pod), "-", "_") + ".slice"
	for _, dir := range strings.FieldsFunc(string(cgroup), func(r rune) bool { return r == '/' || r == '\n' }) {
		if dir == plain || strings.HasSuffix(dir, slice) {
			return true
		}
	}
	return false
}

// Close releases the process; it does not end it.
func (p *Process) Close() { _ = p.proc.Close() }

// Alive reports whether the process still runs; a zombie does not.
func (p *Process) Alive() bool {
	stat, err := p.read("stat", 4<<10)
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return ok && len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

// Netns opens the process's network namespace. It refuses the node's own, which nobody may have changed for
// a guest.
func (p *Process) Netns() (*os.File, error) {
	f, err := p.open("ns/net", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open the pod's network namespace: %w", err)
	}
	same, err := sameFile(f, path.Join(path.Dir(p.proc.Name()), "1/ns/net"))
	if err == nil && same {
		err = errors.New("the pod runs in the network of its node, where no guest's network is made")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sameFile compares an open file with the one that a path leads to; false when there is none.
func sameFile(f *os.File, name string) (bool, error) {
	other, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the node's network namespace: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("look at the pod's network namespace: %w", err)
	}
	return os.SameFile(info, other), nil
}

func (p *Process) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(p.proc.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path.Join(p.proc.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (p *Process) read(name string, limit int64) ([]byte, error) {
	f, err := p.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// inRoot opens a path of the process's root file system, within which links are resolved.
func (p *Process) inRoot(name string, flags uint64) (*os.File, error) {
	root, err := p.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK // don't hang on a FIFO
	}
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open in the pod", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Stat describes a file of the pod.
func (p *Process) Stat(name string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	f, err := p.inRoot(name, unix.O_PATH)
	if err != nil {
		return stat, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return stat, &fs.PathError{Op: "stat in the pod", Path: name, Err: err}
	}
	return stat, nil
}

// Search reads the search domains from the pod's resolv.conf.
func (p *Process) Search() ([]string, error) {
	f, err := p.inRoot("/etc/resolv.conf", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, err
	}
	var search []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "search" {
			search = fields[1:] // the last line counts
		}
	}
	return search, nil
}

// The number of /dev/net/tun.
const tunMajor, tunMinor = 10, 200

// EnsureTun makes /dev/net/tun in the pod. A container's default device rules allow its use.
func (p *Process) EnsureTun() error {
	dev, err := p.inRoot("/dev", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := unix.Mkdirat(int(dev.Fd()), "net", 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make /dev/net in the pod: %w", err)
	}
	dir, err := p.inRoot("/dev/net", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if err := unix.Mknodat(fd, "tun", unix.S_IFCHR|0o666, int(unix.Mkdev(tunMajor, tunMinor))); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make /dev/net/tun in the pod: %w", err)
	}
	// The umask may have taken the rights away.
	if err := unix.Fchmodat(fd, "tun", 0o666, 0); err != nil {
		return fmt.Errorf("open /dev/net/tun in the pod to its user: %w", err)
	}
	return nil
}

// HandOver gives a device node in the pod to the launcher's user. It refuses anything that is not
// the kind of device asked for (unix.S_IFBLK or unix.S_IFCHR).
func (p *Process) HandOver(name string, kind uint32) error {
	f, err := p.inRoot(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return fmt.Errorf("stat %s in the pod: %w", name, err)
	}
	if stat.Mode&unix.S_IFMT != kind {
		return fmt.Errorf("%s in the pod is not the device that was expected", name)
	}
	if stat.Uid == names.User && stat.Gid == names.Group {
		return nil
	}
	if err := unix.Fchownat(int(f.Fd()), "", names.User, names.Group, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("give %s in the pod to the launcher: %w", name, err)
	}
	return nil
}

// HandOverAll gives all character devices in a directory of the pod, and in those below it, to the launcher's user. It is
// no error when there is no such directory.
func (p *Process) HandOverAll(dir string) error {
	f, err := p.inRoot(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("list %s in the pod: %w", dir, err)
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		switch {
		case entry.IsDir():
			err = p.HandOverAll(name)
		case entry.Type()&fs.ModeCharDevice != 0:
			err = p.HandOver(name, unix.S_IFCHR)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
