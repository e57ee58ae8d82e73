// Package csi runs the program of the CSI driver, which the payload has: its controller beside the control plane, and
// its commands on the data of an instance. Each runs in a mount namespace of its own, where it mounts the pool, so that
// the machine never has that among its mounts.
package csi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/payload"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
	"github.com/virtkit/virtkit/pkg/service/files/reflink"
)

// What the driver has in its directory: the pool, which is mounted in the driver's processes only where it is an XFS in
// a file, and then looks empty from here. tests/arch compares them with the driver's.
const (
	poolDir     = "pool"
	poolVolumes = "volumes"
	poolImage   = "pool.img"
)

// The program's commands that run for long, by which their processes are known.
const (
	Controller = "csi-controller"
	Node       = "csi-node"
)

const (
	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// pause is how long a controller that has ended is not started again.
	pause = time.Second
	// stopTime is what it has to end in.
	stopTime = 3 * time.Second
)

// Dir returns the directory of the driver's data.
func Dir(in *instance.Instance) string { return in.Path("csi") }

// NodeProgram returns where the program that each node runs is unpacked.
func NodeProgram(in *instance.Instance) string { return in.Path("bin", payload.CSINode) }

// ControllerLog names the log of the controller.
func ControllerLog(in *instance.Instance) string { return in.Path("logs", Controller+".log") }

// NodeArgs returns the arguments of the program on a node.
func NodeArgs(n instance.Node) []string {
	return []string{Node, "--dir", Dir(n.Instance), "--node", n.NodeName()}
}

func clusterFlags(in *instance.Instance) []string {
	return []string{"--dir", Dir(in), "--kubeconfig", in.Path("pki", pki.Admin+".kubeconfig")}
}

// Serve runs the controller, and starts it again whenever it ends, until ctx is done.
func Serve(ctx context.Context, in *instance.Instance) error {
	// It dies with the thread that has started it, which must not end before the process does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		err := serveOnce(ctx, in)
		if ctx.Err() != nil {
			return nil
		}
		klog.FromContext(ctx).Error(err, "The CSI controller has ended and is started again", "log", ControllerLog(in))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func serveOnce(ctx context.Context, in *instance.Instance) error {
	if err := os.MkdirAll(Dir(in), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	log, err := process.OpenLog(ControllerLog(in))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := command(ctx, in, append([]string{Controller}, clusterFlags(in)...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	return cmd.Run()
}

func command(ctx context.Context, in *instance.Instance, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, in.Path("bin", payload.CSI), args...)
	cmd.Args[0] = payload.CSI
	cmd.Env = append(os.Environ(), searchPath)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// run runs a command of the program to its end and returns what it prints.
func run(ctx context.Context, in *instance.Instance, args ...string) ([]byte, error) {
	cmd := command(ctx, in, args...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		if text := strings.TrimPrefix(strings.TrimSpace(problem.String()), "error: "); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("run %s %s: %w", payload.CSI, args[0], err)
	}
	return out.Bytes(), nil
}

// Orphan is data without an object in the cluster.
type Orphan struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

// Orphans lists data without an object, of a cluster that is up.
func Orphans(ctx context.Context, in *instance.Instance) ([]Orphan, error) {
	out, err := run(ctx, in, append([]string{"orphans"}, clusterFlags(in)...)...)
	if err != nil {
		return nil, fmt.Errorf("list data without an object: %w", err)
	}
	var all []Orphan
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("list data without an object: %w", err)
	}
	return all, nil
}

// Remove erases orphans, all or none.
func Remove(ctx context.Context, in *instance.Instance, names []string) error {
	_, err := run(ctx, in, append(append([]string{"remove"}, clusterFlags(in)...), names...)...)
	return err
}

// Limits returns what the volumes of an instance cannot do, for users: they are on a file system without reflinks, as
// in a pool that was made when the machine had no mkfs.xfs. It is empty when they can do everything, and before the
// driver has made its pool. It asks the file system as the driver does, and needs no driver that runs. A file system
// that cannot be asked, as when it is full, is no failure of what the caller does: it is said in the same place.
func Limits(in *instance.Instance) string {
	if in.Storage != instance.CSI {
		return ""
	}
	possible, err := reflinks(in)
	switch {
	case err != nil:
		return fmt.Sprintf("volumes are on a file system that could not be asked for reflinks: %v", err)
	case possible:
		return ""
	}
	return "volumes are on a file system without reflinks: snapshots and clones are copies, which take their time, " +
		"and a volume in use cannot be copied. A cluster that is made anew has its volumes on an XFS"
}

// reflinks reports whether the pool of an instance has reflinks, or is yet to be made.
func reflinks(in *instance.Instance) (bool, error) {
	_, err := os.Stat(filepath.Join(Dir(in), poolImage))
	if err == nil { // an XFS of its own
		return true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	pool := filepath.Join(Dir(in), poolDir)
	if _, err := os.Stat(filepath.Join(pool, poolVolumes)); errors.Is(err, os.ErrNotExist) {
		return true, nil // the driver has not made it yet, or is making the XFS
	}
	return reflink.Possible(pool)
}

// Release detaches the loop devices of all volumes, when nothing of the cluster runs any more.
func Release(ctx context.Context, in *instance.Instance) error {
	if _, err := os.Stat(Dir(in)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := payload.UnpackCSI(in.Path("bin")); err != nil {
		return err
	}
	if _, err := run(ctx, in, "release", "--dir", Dir(in)); err != nil {
		return fmt.Errorf("detach volumes: %w", err)
	}
	return nil
}
