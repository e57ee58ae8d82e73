// Package pool keeps the data of volumes and snapshots: each is one image file, of exactly its size, on a file system
// that can share blocks between files (reflinks). So a snapshot or a clone takes the same short time whatever its size,
// and file system and block volumes are the same thing.
//
//	<dir>/
//	  pool.img                    an XFS, where the directory's own file system has no reflinks (sparse)
//	  pool/                       its mount point, in the mount namespaces of those who use it; else a directory
//	    volumes/<id>/image        what is on the volume
//	    volumes/<id>/volume.json  Volume
//	    volumes/<id>/nodes.json   which nodes have it attached
//	    snapshots/<id>/           image and snapshot.json
//	    new/                      what is being made: it becomes visible by a rename
//	    sync/                     mount points, for a moment
//	    erase/                    what is being erased: it leaves by a rename, and is whole until then
//
// Data is erased because Remove was called, never because something is missing.
package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/service/files"
)

// Errors by which callers choose what to answer.
var (
	ErrNotFound = errors.New("it does not exist")
	ErrExists   = errors.New("it exists with other properties")
	ErrFull     = errors.New("the pool has no room")
	ErrInUse    = errors.New("it is in use")
)

// Pool is an open pool.
type Pool struct {
	// Root is the directory of volumes.
	Root string
	// Reflinks says that files can share blocks.
	Reflinks bool
	// Now is the time, for tests.
	Now func() time.Time

	// host is a directory of the file system that has pool.img; empty without that.
	host string
	// room keeps two from taking the same room; pending is what is promised to those that are being made, bytes.
	room    sync.Mutex
	pending int64
}

// The kinds of what is in a pool: directories, and the file in each entry that describes it.
type kind struct{ dir, record string }

var (
	volumes   = kind{poolVolumes, "volume.json"}
	snapshots = kind{"snapshots", "snapshot.json"}
)

const (
	making  = "new"
	erasing = "erase"
	// syncing has mount points for a moment; nothing is deleted in it but empty directories.
	syncing = "sync"
)

func (p *Pool) path(k kind, id string) string { return filepath.Join(p.Root, k.dir, id) }

// aside returns the path at which an entry waits to be erased; volumes and snapshots have no name in common there.
func (p *Pool) aside(k kind, id string) string { return filepath.Join(p.Root, erasing, k.dir+"."+id) }

// Image returns the file with a volume's content.
func (p *Pool) Image(id string) string { return filepath.Join(p.path(volumes, id), "image") }

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// ID returns the identifier, and file name, of what a caller has called name.
func ID(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "name-" + hex.EncodeToString(sum[:16])
}

// at opens a pool whose directory is ready.
func at(root string, reflinks bool, host string) (*Pool, error) {
	for _, dir := range []string{volumes.dir, snapshots.dir, making, erasing, syncing} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, fmt.Errorf("lay out the pool: %w", err)
		}
	}
	return &Pool{Root: root, Reflinks: reflinks, Now: time.Now, host: host}, nil
}

// lock holds an entry against other processes until the returned function is called.
func (p *Pool) lock(k kind, id string) (unlock func(), err error) {
	if !plainName.MatchString(id) {
		return nil, fmt.Errorf("%s %q: %w", k.dir, id, ErrNotFound)
	}
	f, err := os.Open(p.path(k, id))
	if errors.Is(err, fs.ErrNotExist) {
		if err = p.putBack(k, id); err == nil {
			f, err = os.Open(p.path(k, id))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %q: %w", k.dir, id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s %q: %w", k.dir, id, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s %q: %w", k.dir, id, err)
	}
	// Somebody may have removed it, and another may have come, while we waited.
	var now, ours unix.Stat_t
	err = errors.Join(unix.Fstat(int(f.Fd()), &ours), unix.Stat(p.path(k, id), &now))
	if err != nil || now.Ino != ours.Ino {
		f.Close()
		return nil, fmt.Errorf("%s %q: %w", k.dir, id, ErrNotFound)
	}
	return func() { f.Close() }, nil
}

// putBack takes back the beginning of a removal that did not go on, for somebody asks for the entry.
func (p *Pool) putBack(k kind, id string) error { return os.Rename(p.aside(k, id), p.path(k, id)) }

// publish makes what was made under new/ visible, whole and on the disk. The disk is made to write as late as can be,
// and so as seldom: one write of the file system's log has all that came before.
func (p *Pool) publish(k kind, id string) error {
	from := filepath.Join(p.Root, making, id)
	for _, path := range []string{filepath.Join(from, k.record), filepath.Join(from, "image"), from} {
		if err := files.Sync(path); err != nil {
			return err
		}
	}
	if err := os.Rename(from, p.path(k, id)); err != nil {
		return err
	}
	return files.Sync(filepath.Join(p.Root, k.dir))
}

// begin makes a directory to make an entry in, and takes away what an interrupted attempt has left.
func (p *Pool) begin(id string) (string, error) {
	dir := filepath.Join(p.Root, making, id)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}

// erase removes an entry in three steps, each of which a kill may be the last: it is moved aside, whole; it is marked
// as no longer whole; it is deleted. Called again it goes on.
func (p *Pool) erase(k kind, id string) error {
	aside := p.aside(k, id)
	if err := os.Rename(p.path(k, id), aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.killPoint("aside")
	if err := os.Rename(aside, aside+partly); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.killPoint("partly")
	return os.RemoveAll(aside + partly)
}

// partly ends the name of what is no longer whole.
const partly = "~"

// killPoint calls the function with which tests end a removal.
func (p *Pool) killPoint(at string) {
	if killed != nil {
		killed(at)
	}
}

var killed func(at string)

// Clean removes what was being made when the process was killed, which nobody was ever given, and the remains of what
// is no longer whole. What waits whole to be erased waits on.
func (p *Pool) Clean() error {
	unfinished, err := filepath.Glob(filepath.Join(p.Root, making, "*"))
	if err != nil {
		return fmt.Errorf("clean the pool: %w", err)
	}
	broken, err := filepath.Glob(filepath.Join(p.Root, erasing, "*"+partly))
	if err != nil {
		return fmt.Errorf("clean the pool: %w", err)
	}
	for _, dir := range append(unfinished, broken...) {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("clean the pool: %w", err)
		}
	}
	return nil
}
