// Package podfs reaches from the node into a launcher's pod: its `run` volume below the kubelet's pod
// directory, and the namespaces and devices of the process that serves the launcher's socket.
//
// What lies in the volume was written by a process that a guest may have taken over, so nothing in
// it is trusted: files are found by package beneath, and a peer counts only once the kernel has said that it is the
// launcher's user's and runs in the launcher's container. Which devices a launcher may use is never read from the pod.
package podfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
	"github.com/virtkit/virtkit/pkg/names"
)

// RunPath returns the run volume of a pod below the kubelet's pod directory.
func RunPath(podsDir string, pod types.UID) string {
	return filepath.Join(podsDir, string(pod), "volumes", "kubernetes.io~empty-dir", names.VolumeRun)
}

// Run is an open run volume.
type Run struct {
	// Root is the volume, too, for package capabilities, which makes files in it. It follows links within the volume,
	// and opens whatever a file is.
	Root *os.Root
	dir  *beneath.Dir
}

// OpenRun opens the run volume of a pod. The error is fs.ErrNotExist while the kubelet has not made it.
func OpenRun(podsDir string, pod types.UID) (*Run, error) {
	path := RunPath(podsDir, pod)
	dir, err := beneath.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the pod's run volume: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open the pod's run volume: %w", err)
	}
	return &Run{Root: root, dir: dir}, nil
}

// Close releases the volume.
func (r *Run) Close() error {
	r.dir.Close()
	return r.Root.Close()
}

// Dial connects to a unix socket in the volume. However long the volume's path is, the socket's name
// is within the kernel's limit.
func (r *Run) Dial(ctx context.Context, name string) (*net.UnixConn, error) {
	node, err := r.dir.Find(name)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	path, err := node.Socket()
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // without the meaningless path
		}
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return conn.(*net.UnixConn), nil
}

// Read reads a regular file of at most limit bytes.
func (r *Run) Read(name string, limit int64) ([]byte, error) {
	f, size, err := r.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil,
			&fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%d bytes are more than the %d allowed", size, limit)}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Tail reads the last n bytes of a regular file, or the whole file when it is shorter.
func (r *Run) Tail(name string, n int64) ([]byte, error) {
	f, size, err := r.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > n {
		if _, err := f.Seek(size-n, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// OpenRegular opens a regular file for reading, and gives its size in bytes. What else lies where a file should is not
// opened.
func (r *Run) OpenRegular(name string) (*os.File, int64, error) {
	node, err := r.dir.Find(name)
	if err != nil {
		return nil, 0, err
	}
	defer node.Close()
	return node.Regular()
}

// recheck bounds how late a socket is seen should a notification be missing.
const recheck = time.Second

// WaitSocket returns once the file is there in the pod's run volume, which need not exist yet, or
// the context ends.
func WaitSocket(ctx context.Context, podsDir string, pod types.UID, name string) error {
	return waitSocket(ctx, podsDir, pod, name, recheck)
}

func waitSocket(ctx context.Context, podsDir string, pod types.UID, name string, recheck time.Duration) error {
	path := filepath.Join(RunPath(podsDir, pod), name)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the kubelet's pod directory: %w", err)
	}
	defer watcher.Close()
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	watched := ""
	for {
		// Watch first and look afterwards, so that nothing falls in between.
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			if dir == watched {
				break
			}
			if err := watcher.Add(dir); err == nil {
				if watched != "" {
					_ = watcher.Remove(watched) // gone by itself when its directory is
				}
				watched = dir
				break
			} else if !errors.Is(err, fs.ErrNotExist) || dir == podsDir || dir == filepath.Dir(dir) {
				return fmt.Errorf("watch %s: %w", dir, err)
			}
		}
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		if next := filepath.Dir(path); watched != next {
			if _, err := os.Lstat(child(watched, path)); err == nil {
				continue // made since: watch deeper
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watcher.Events:
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // then events were lost: look
				return fmt.Errorf("watch %s: %w", watched, err)
			}
		case <-ticker.C:
		}
	}
}

// child returns the entry of dir on the way to path.
func child(dir, path string) string {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return path
	}
	for filepath.Dir(rel) != "." {
		rel = filepath.Dir(rel)
	}
	return filepath.Join(dir, rel)
}
