package podfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
	"github.com/virtkit/virtkit/pkg/handler/records"
	"github.com/virtkit/virtkit/pkg/names"
)

// Peer finds the process that serves a launcher's socket, to which conn is a connection, and makes sure that it is the
// launcher: it runs in the pod, in the container `compute`, as the launcher's user. Others in the pod may write the
// directory that the socket lies in. proc is the mount point of procfs in the host's PID namespace, podsDir the
// kubelet's pod directory.
func Peer(conn *net.UnixConn, proc, podsDir string, pod types.UID) (*Process, error) {
	cred, handle, err := credentials(conn)
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if handle >= 0 {
		defer unix.Close(handle)
	}
	switch {
	case cred.Pid <= 0:
		return nil, errors.New("the launcher's process is not visible: virt-handler must run with hostPID: true")
	case cred.Uid != names.User:
		return nil, fmt.Errorf("process %d that serves the launcher's socket is user %d's, not %d's", cred.Pid,
			cred.Uid, names.User)
	}
	p, err := openProcess(proc, int(cred.Pid))
	if err != nil {
		return nil, fmt.Errorf("open the launcher's process: %w", err)
	}
	p.Pod = pod
	if err := p.isLauncher(podsDir, handle); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// credentials returns the credentials of the process that listens, and a handle on it, -1 where the kernel gives none
// (before Linux 6.5).
func credentials(conn *net.UnixConn) (cred *unix.Ucred, handle int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, -1, err
	}
	handle = -1
	var wrong error
	err = raw.Control(func(fd uintptr) {
		if cred, wrong = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); wrong != nil {
			return
		}
		if handle, wrong = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); wrong != nil {
			handle = -1
			if errors.Is(wrong, unix.ENOPROTOOPT) {
				wrong = nil
			}
		}
	})
	return cred, handle, errors.Join(err, wrong)
}

// isLauncher fails unless the process is a launcher of its pod. handle says that its number has not passed to another
// one.
func (p *Process) isLauncher(podsDir string, handle int) error {
	if handle >= 0 {
		if err := unix.PidfdSendSignal(handle, 0, nil, 0); err != nil {
			return fmt.Errorf("process %d, which made the launcher's socket, has ended: %w", p.PID, err)
		}
	}
	cgroup, err := p.read("cgroup", 64<<10)
	if err != nil {
		return err
	}
	if !inPod(cgroup, p.Pod) {
		return fmt.Errorf("process %d that serves the launcher's socket is not in pod %s", p.PID, p.Pod)
	}
	in, err := p.inContainer(podsDir, names.ContainerCompute)
	if err != nil {
		return fmt.Errorf("find the container of process %d: %w", p.PID, err)
	}
	if !in {
		return fmt.Errorf("process %d that serves the launcher's socket is not in container %s of pod %s", p.PID,
			names.ContainerCompute, p.Pod)
	}
	return nil
}

// terminationLog is the path at which the kubelet mounts the file for a container's termination message; launchers and
// attachment pods leave it so.
const terminationLog = "/dev/termination-log"

// inContainer reports whether the process sees the files of a container of its pod. What the API says of containers
// comes late; but before the kubelet has one made it makes a file of its termination message, below its own directory
// of the pod and the container's name, and has it mounted in this container only. No process can bring it to where it
// is looked for in another container: no link is followed, and a hard link does not leave its mount.
func (p *Process) inContainer(podsDir, container string) (bool, error) {
	if err := records.ValidUID(p.Pod); err != nil {
		return false, err
	}
	root, err := beneath.Root(p.proc)
	if err != nil {
		return false, err
	}
	defer root.Close()
	log, err := root.FindMounted(terminationLog)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer log.Close()
	seen := log.Stat()
	if seen.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, nil
	}
	dir := filepath.Join(podsDir, string(p.Pod), "containers", container)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		var made unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, entry.Name()), &made); err != nil {
			continue // that of an earlier container, removed meanwhile
		}
		if made.Dev == seen.Dev && made.Ino == seen.Ino {
			return true, nil
		}
	}
	return false, nil
}

// inPod reports whether /proc/<pid>/cgroup has a directory of the pod, as the kubelet names it: pod<uid> with the
// cgroupfs driver, …-pod<uid with underscores>.slice with systemd's.
func inPod(cgroup []byte, pod types.UID) bool {
	if pod == "" {
		return false
	}
	plain := "pod" + string(pod)
	slice := "-pod" + strings.ReplaceAll(string(pod), "-", "_") + ".slice"
	for line := range bytes.Lines(cgroup) {
		// ID:controllers:path; see cgroups(7)
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for dir := range strings.SplitSeq(fields[2], "/") {
			if dir == plain || strings.HasSuffix(dir, slice) {
				return true
			}
		}
	}
	return false
}
