package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Device is a device: its kind, unix.S_IFBLK or unix.S_IFCHR, and its number. The zero one is none.
type Device struct {
	Kind   uint32
	Number uint64
}

func (d Device) String() string {
	kind := "character device"
	if d.Kind == unix.S_IFBLK {
		kind = "block device"
	}
	return fmt.Sprintf("%s %d:%d", kind, unix.Major(d.Number), unix.Minor(d.Number))
}

// Node is a file of any kind that was found. Whatever becomes of its name, it stays this one.
type Node struct {
	f    *os.File // O_PATH
	stat unix.Stat_t
}

func newNode(f *os.File) (*Node, error) {
	n := &Node{f: f}
	if err := unix.Fstat(int(f.Fd()), &n.stat); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return n, nil
}

// Close releases the file.
func (n *Node) Close() { _ = n.f.Close() }

// Stat describes the file as it was found.
func (n *Node) Stat() unix.Stat_t { return n.stat }

// Device returns the device that the file is, zero if it is none.
func (n *Node) Device() Device {
	switch kind := n.stat.Mode & unix.S_IFMT; kind {
	case unix.S_IFBLK, unix.S_IFCHR:
		return Device{Kind: kind, Number: n.stat.Rdev}
	}
	return Device{}
}

// Socket returns a path by which the socket can be connected to as long as the node is open. However long the path was
// by which it was found, this one is within the kernel's limit.
func (n *Node) Socket() (string, error) {
	if n.stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return "", &fs.PathError{Op: "open socket", Path: n.f.Name(), Err: errors.New("not a socket")}
	}
	return n.path(), nil
}

func (n *Node) path() string { return fmt.Sprintf("/proc/self/fd/%d", n.f.Fd()) }

// Regular opens a regular file for reading, and gives its size in bytes. Nothing else is opened: to open a FIFO takes
// for ever, and to open a device may be all that it takes to set it off.
func (n *Node) Regular() (*os.File, int64, error) {
	if n.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, &fs.PathError{Op: "open", Path: n.f.Name(), Err: ErrNotRegular}
	}
	// The link of procfs leads to the file itself, which no name is looked up for again.
	fd, err := unix.Open(n.path(), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: n.f.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), n.f.Name())
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// special fails unless the file is a device or a socket. Who may write a directory can give any regular file of its
// mount a name there (link), so those are nobody's to change who did not make them.
func (n *Node) special(op string) error {
	switch n.stat.Mode & unix.S_IFMT {
	case unix.S_IFBLK, unix.S_IFCHR, unix.S_IFSOCK:
		return nil
	}
	return &fs.PathError{Op: op, Path: n.f.Name(), Err: errors.New("not a device or a socket")}
}

// Give makes somebody the owner of a device or a socket.
func (n *Node) Give(user, group int) error {
	if err := n.special("give away"); err != nil {
		return err
	}
	if int(n.stat.Uid) == user && int(n.stat.Gid) == group {
		return nil
	}
	if err := unix.Fchownat(int(n.f.Fd()), "", user, group, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "give away", Path: n.f.Name(), Err: err}
	}
	return nil
}

// Chmod sets the permissions of a device or a socket.
func (n *Node) Chmod(mode uint32) error {
	if err := n.special("chmod"); err != nil {
		return err
	}
	if n.stat.Mode&0o7777 == mode {
		return nil
	}
	if err := unix.Chmod(n.path(), mode); err != nil { // fchmod takes no such descriptor before Linux 6.6
		return &fs.PathError{Op: "chmod", Path: n.f.Name(), Err: err}
	}
	return nil
}

// Reading is a file that was found through links: it may be looked at and read, and not be changed.
type Reading struct{ node *Node }

// Close releases the file.
func (r *Reading) Close() { r.node.Close() }

// Stat describes the file as it was found.
func (r *Reading) Stat() unix.Stat_t { return r.node.stat }

// Device returns the device that the file is, zero if it is none.
func (r *Reading) Device() Device { return r.node.Device() }

// Regular does what Node's Regular does.
func (r *Reading) Regular() (*os.File, int64, error) { return r.node.Regular() }

// List lists the directory that the file is; see Dir.List.
func (r *Reading) List(most int) ([]fs.DirEntry, error) {
	return (&Dir{r.node.f}).List(most)
}
