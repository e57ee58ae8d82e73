// virt-local-csi-node is the CSI driver on a node of a virt-local cluster: Identity and Node, in the node's namespaces.
// It is a part of virt-local, which starts it; see docs/virt-local.md. It is a program of its own since each node runs
// one, and what the controller links takes several times its memory.
//
//	virt-local-csi-node csi-node
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/plugin"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// command is the first argument, by which virt-local knows the process.
const command = "csi-node"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != command {
		return errors.New("this is a part of virt-local, which starts it: use virt-local up")
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	dir := flags.String("dir", "", "the pool's directory")
	node := flags.String("node", "", "name of the node")
	kubelet := flags.String("kubelet", "/var/lib/kubelet", "the kubelet's directory")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" || *node == "" {
		return errors.New("--dir and --node must be given: the pool's directory, and the node's name")
	}
	p, err := pool.Open(*dir)
	if err != nil {
		return err
	}
	return plugin.Run(ctx, *kubelet, driver.All(p, *node)...)
}
