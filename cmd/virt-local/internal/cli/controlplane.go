package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/controlplane"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
)

type controlPlaneOptions struct {
	dir         string
	kubeconfig  string
	readyFD     int
	controllers string
	scheduler   bool
	grace       time.Duration
}

func newControlPlaneCommand() *cobra.Command {
	var o controlPlaneOptions
	c := &cobra.Command{
		Use:   "control-plane --dir DIR",
		Short: "Run an API server alone, for tests",
		Long: `Run kube-apiserver and etcd, and nothing else, on a free port of the loopback interface, until SIGTERM or
SIGINT. Needs no root. Everything it writes is below --dir.

Without --controllers there is nothing that acts on objects: no garbage collection, no deletion of
namespaces, no service accounts (pods are admitted without).`,
		Example: `  # Start one; it is ready once the kubeconfig appears
  virt-local control-plane --dir /tmp/test --kubeconfig /tmp/test/kubeconfig

  # With garbage collection and deletion of namespaces
  virt-local control-plane --dir /tmp/test --controllers garbage-collector-controller,namespace-controller,serviceaccount-controller`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runControlPlane(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "", "directory for etcd, certificates and the audit log (required)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file to write an admin's kubeconfig to once the API server is ready (default DIR/kubeconfig)")
	f.IntVar(&o.readyFD, "ready-fd", 0, "file descriptor to write the API server's URL and a newline to once it is "+
		"ready; then it is closed")
	f.StringVar(&o.controllers, "controllers", "",
		"controllers of kube-controller-manager to run, as its own flag: a list, or * for the default ones")
	f.BoolVar(&o.scheduler, "scheduler", false, "run kube-scheduler")
	f.DurationVar(&o.grace, "node-monitor-grace-period", 0, "how long a silent node stays Ready (default Kubernetes')")
	cobra.CheckErr(c.MarkFlagRequired("dir"))
	return c
}

func runControlPlane(ctx context.Context, o controlPlaneOptions) error {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("find --dir: %w", err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if o.kubeconfig != "" {
		if path, err = filepath.Abs(o.kubeconfig); err != nil {
			return fmt.Errorf("find --kubeconfig: %w", err)
		}
	}
	// Its appearance says that the API server is ready, so an old one must go first.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove old kubeconfig: %w", err)
	}
	cfg := controlplane.Config{
		Dir: dir, Address: "127.0.0.1:0", ServiceNet: "10.0.0.0/24",
		Controllers: o.controllers, Scheduler: o.scheduler, NodeMonitorGrace: o.grace,
	}
	return controlplane.Run(ctx, cfg, func(admin kubeconfig.Credentials) error {
		if err := admin.WriteFile(path, "virt-local"); err != nil {
			return err
		}
		return signalReady(o.readyFD, admin.Server)
	})
}

// signalReady writes a line to the file descriptor and closes it; 0 is none.
func signalReady(fd int, line string) error {
	if fd == 0 {
		return nil
	}
	f := os.NewFile(uintptr(fd), "ready-fd")
	if f == nil {
		return fmt.Errorf("--ready-fd=%d is not an open file", fd)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		return fmt.Errorf("write to --ready-fd=%d: %w", fd, err)
	}
	return nil
}
