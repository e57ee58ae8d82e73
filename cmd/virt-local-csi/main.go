// virt-local-csi is the storage of a virt-local cluster: the CSI driver on one machine, with Kubernetes' own sidecars.
// What of it each node runs is the program in the directory node.
// It is a part of virt-local, which starts it; see docs/virt-local.md. It is a module and a program of its own since
// the sidecars register feature gates under the names that Kubernetes' components have for theirs, which one process
// cannot have twice.
//
//	virt-local-csi csi-controller   Identity and Controller, and the sidecars: one a cluster, its mounts its own
//	virt-local-csi orphans          lists data that no object is for, as JSON
//	virt-local-csi remove           removes some of that
//	virt-local-csi release          detaches all loop devices, when the cluster is down
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/orphans"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/program"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/sidecars"
)

type options struct {
	dir, kubeconfig string
	args            []string
}

func main() {
	program.Commands{
		"csi-controller": with(runController), "orphans": with(runOrphans), "remove": with(runRemove),
		"release": with(func(_ context.Context, o options) error { return pool.Release(o.dir) }),
	}.Main()
}

// with returns a command that parses its options, and calls command with them.
func with(command func(context.Context, options) error) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		var o options
		flags := flag.NewFlagSet("virt-local-csi", flag.ContinueOnError)
		flags.StringVar(&o.dir, "dir", "", "the pool's directory")
		flags.StringVar(&o.kubeconfig, "kubeconfig", "", "of an administrator")
		if err := flags.Parse(args); err != nil {
			return err
		}
		o.args = flags.Args()
		if o.dir == "" {
			return errors.New("--dir is missing: name the pool's directory")
		}
		return command(ctx, o)
	}
}

const (
	// preparation is how long an API server that has just started may refuse what is needed, or not yet serve a kind
	// that it says it has; again is the pause between.
	preparation, again = 30 * time.Second, 200 * time.Millisecond
)

// prepare makes the objects that the sidecars need.
func prepare(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, preparation)
	defer cancel()
	for {
		err := sidecars.Prepare(ctx, config)
		if err == nil || ctx.Err() != nil {
			return err
		}
		klog.ErrorS(err, "The objects that the driver needs cannot be made yet")
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

func runController(ctx context.Context, o options) error {
	config, err := credentials(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new pool takes its time, too.
	prepared := make(chan error, 1)
	go func() { prepared <- prepare(ctx, config) }()
	p, err := pool.Open(o.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Clean(), <-prepared); err != nil {
		return err
	}
	if limits := p.Limits(); limits != "" {
		klog.Info(limits)
	}
	// A socket's path may have 108 characters, and the state directory's may have more.
	if err := os.Chdir(o.dir); err != nil {
		return err
	}
	failed := make(chan error, 3)
	var served []sidecars.Driver
	for _, d := range driver.All(p, "") {
		socket := strings.SplitN(d.Name, ".", 2)[0] + ".sock"
		go func() { failed <- d.Serve(ctx, socket) }()
		served = append(served, sidecars.Driver{
			Name: d.Name, Socket: filepath.Join("/proc/self/cwd", socket),
			Snapshots: d.Name == driver.Name, OneNode: d.Name == driver.Name,
		})
	}
	go func() { failed <- sidecars.Run(ctx, config, served) }()
	err = <-failed
	if ctx.Err() != nil {
		return nil // what still runs ends with the process
	}
	return err
}

func credentials(o options) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = 100, 200, "virt-local-csi"
	return config, nil
}

func runOrphans(ctx context.Context, o options) error {
	found, err := findOrphans(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func findOrphans(ctx context.Context, o options) ([]orphans.Orphan, error) {
	config, err := credentials(o)
	if err != nil {
		return nil, err
	}
	p, err := pool.Open(o.dir)
	if err != nil {
		return nil, err
	}
	return orphans.Find(ctx, config, p)
}

// runRemove removes orphans, all or none: what has an object is Kubernetes' to remove.
func runRemove(ctx context.Context, o options) error {
	found, err := findOrphans(ctx, o)
	if err != nil {
		return err
	}
	p, err := pool.Open(o.dir)
	if err != nil {
		return err
	}
	return orphans.Remove(p, found, o.args)
}
