package podfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
)

// Process is the process that serves a launcher's socket. It stays the same process whatever becomes
// of its number.
type Process struct {
	PID int
	// Pod is the pod that it was found in.
	Pod  types.UID
	proc *os.File // /proc/<pid>
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

// find finds a file of the process's root file system, within which links are resolved.
func (p *Process) find(name string) (*beneath.Reading, error) {
	root, err := beneath.Root(p.proc)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	found, err := root.FindLinked(name)
	if err != nil {
		return nil, fmt.Errorf("in the pod: %w", err)
	}
	return found, nil
}

// Stat describes a file of the pod.
func (p *Process) Stat(name string) (unix.Stat_t, error) {
	found, err := p.find(name)
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer found.Close()
	return found.Stat(), nil
}

// Resolv is what a pod's resolv.conf says.
type Resolv struct {
	Search      []string
	Nameservers []netip.Addr
}

// Resolv reads the pod's resolv.conf.
func (p *Process) Resolv() (Resolv, error) {
	found, err := p.find("/etc/resolv.conf")
	if err != nil {
		return Resolv{}, err
	}
	defer found.Close()
	f, _, err := found.Regular()
	if err != nil {
		return Resolv{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return Resolv{}, err
	}
	var out Resolv
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "search":
			out.Search = fields[1:] // the last line counts
		case "nameserver":
			a, err := netip.ParseAddr(fields[1])
			if err == nil && len(out.Nameservers) < maxNameservers {
				out.Nameservers = append(out.Nameservers, a.Unmap())
			}
		}
	}
	return out, nil
}

// maxNameservers is how many resolvers use.
const maxNameservers = 3
