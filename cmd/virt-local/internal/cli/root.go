// Package cli is the command line of virt-local: what users type (up, status, logs, load-image, node,
// volume, down, control-plane), and the hidden commands as which virt-local starts itself again: the control plane of
// an instance, a node's init, containerd, kubelet and kube-proxy.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/version"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/pkg/waits"
)

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	if plugin := plugins[filepath.Base(os.Args[0])]; plugin != nil {
		plugin()
		return 0
	}
	// These have flags of their own.
	if len(args) > 0 {
		if program := programs[args[0]]; program != nil {
			return program(args)
		}
	}
	// Libraries of Kubernetes have put flags here that cobra would show as ours; one, --version, clashes.
	pflag.CommandLine = pflag.NewFlagSet("virt-local", pflag.ContinueOnError)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "interrupted")
		return 130
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	return 1
}

// which are the flags that name an instance.
type which struct{ name, stateDir string }

func newRootCommand() *cobra.Command {
	w := new(which)
	root := &cobra.Command{
		Use:   "virt-local",
		Short: "A Kubernetes of several nodes on this machine",
		Long: `virt-local runs a real Kubernetes on one Linux machine: the control plane in one process, and each node in
namespaces of its own with containerd, kubelet and kube-proxy.`,
		Example: `  sudo virt-local up                       # two nodes; kubectl works at once
  sudo virt-local load-image app.tar       # instead of a registry
  sudo virt-local status
  sudo virt-local down                     # leaves nothing behind`,
		Version:      version.Get().GitVersion,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := waits.Factor()
			return err
		},
	}
	root.PersistentFlags().
		StringVar(&w.name, "name", instance.DefaultName, "name of the instance; several can run side by side")
	root.PersistentFlags().StringVar(&w.stateDir, "state-dir", "", "directory for everything of the instance "+
		"(default /var/lib/virt-local/<name>)")
	root.AddCommand(
		newUpCommand(w), newStatusCommand(w), newLogsCommand(w), newLoadImageCommand(w), newNodeCommand(w),
		newVolumeCommand(w), newDownCommand(w),
		newControlPlaneCommand(), newClusterControlPlaneCommand(w), newNodeInitCommand(w),
	)
	return root
}

// dir returns the state directory of the instance that the flags name.
func (w *which) dir() (string, error) {
	if err := instance.ValidateName(w.name); err != nil {
		return "", err
	}
	dir := w.stateDir
	if dir == "" {
		dir = instance.DefaultStateDir(w.name)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find --state-dir: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return dir, nil
}

// load reads the instance that the flags name.
func (w *which) load() (*instance.Instance, error) {
	dir, err := w.dir()
	if err != nil {
		return nil, err
	}
	in, err := instance.Load(dir)
	if errors.Is(err, instance.ErrNotFound) {
		return nil,
			fmt.Errorf("instance %q is not there (%s); start it with: sudo virt-local up%s", w.name, dir, w.flags())
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, errNotRoot
	}
	return in, err
}

// loadAsRoot loads the instance as load does, for a command that only root may run.
func (w *which) loadAsRoot() (*instance.Instance, error) {
	if err := requireRoot(); err != nil {
		return nil, err
	}
	return w.load()
}

// flags returns the flags that name the instance, for use in hints.
func (w *which) flags() string {
	flags := ""
	if w.name != instance.DefaultName {
		flags += " --name " + w.name
	}
	if w.stateDir != "" {
		flags += " --state-dir " + w.stateDir
	}
	return flags
}

var errNotRoot = errors.New("virt-local must be root, to make namespaces, cgroups and links: run it with sudo")

func requireRoot() error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	return nil
}

// lock holds the state directory against other commands that change the instance, until the returned function
// is called.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintln(os.Stderr, "Waiting for another virt-local command on this instance …")
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	return func() { f.Close() }, nil
}
