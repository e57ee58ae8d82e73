package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/pkg/waits"
)

func newDownCommand(w *which) *cobra.Command {
	var keepData bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it",
		Long: `Stop the cluster and remove everything of it: processes, namespaces, links, routes, cgroups, firewall rules, the
context in the kubeconfig, and the state directory with all images and volumes. It works after a crash, too,
and when there is nothing to remove.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDown(cmd.Context(), w, keepData) },
	}
	c.Flags().BoolVar(&keepData, "keep-data", false, "keep the state directory and the context: a later up finds "+
		"objects, images and volumes again")
	return c
}

func runDown(ctx context.Context, w *which, keepData bool) error {
	if err := requireRoot(); err != nil {
		return err
	}
	dir, err := w.dir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "Instance %q is not there (%s): nothing to do.\n", w.name, dir)
		return nil
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	in, err := instance.Load(dir)
	if errors.Is(err, instance.ErrNotFound) {
		return removeRemains(dir)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waits.Scaled(2*time.Minute))
	defer cancel()
	if err := cluster.Down(ctx, in); err != nil {
		return fmt.Errorf("%w\nSome of it is left: try again with virt-local down%s", err, w.flags())
	}
	if err := release(in); err != nil {
		return err
	}
	if keepData {
		fmt.Fprintf(os.Stderr, "Cluster %q is down; its data is in %s.\n", in.Name, dir)
		return nil
	}
	if err := forget(in); err != nil {
		return err
	}
	if err := removeState(dir); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Cluster %q is gone.\n", in.Name)
	return nil
}

// forget takes the context out of every kubeconfig that `up` has merged it into.
func forget(in *instance.Instance) error {
	var errs []error
	for _, path := range append([]string{in.Kubeconfig}, in.Kubeconfigs...) {
		errs = append(errs, kubeconfig.Update(path, func(cfg *api.Config) { kubeconfig.Remove(cfg, in.Name) }))
	}
	return errors.Join(errs...)
}

// removeRemains removes a state directory that has no instance any more: a `down` that was killed near its end
// leaves one, as does an `up` that was killed at once. A directory with anything else in it is not ours.
func removeRemains(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	ours := map[string]bool{
		"pki": true, "etcd": true, "volumes": true, "csi": true, "logs": true, "run": true, "bin": true, "nodes": true,
		"audit.log": true, "audit-policy.yaml": true, "etcd.sock": true, "etcd-peer.sock": true,
	}
	for _, e := range entries {
		rotated, _ := filepath.Match("audit-*.log", e.Name()) // a pattern that is one
		if !ours[e.Name()] && !rotated {
			return fmt.Errorf("%s has no instance but other files (%s): remove it yourself if it is not needed",
				dir, e.Name())
		}
	}
	return removeState(dir)
}

// removeState removes the state directory, instance.json last, so that a `down` that is interrupted can be
// repeated, and the directory of instances if it was the last.
func removeState(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove state directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "instance.json" {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove state directory: %w", err)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove state directory: %w", err)
	}
	if parent := filepath.Dir(instance.DefaultStateDir("x")); filepath.Dir(dir) == parent {
		if err := os.Remove(parent); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("remove state directory: %w", err)
		}
	}
	return nil
}

// release gives back the instance's slot, and the machine's settings if it was the last.
func release(in *instance.Instance) (err error) {
	register, err := instance.OpenRegister(instance.RegisterDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, register.Close()) }()
	last, err := register.Release(in)
	if err != nil || !last {
		return err
	}
	return register.RestoreSysctls()
}
