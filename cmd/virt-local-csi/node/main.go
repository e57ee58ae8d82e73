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

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/plugin"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/program"
)

func main() { program.Commands{"csi-node": run}.Main() }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("virt-local-csi-node", flag.ContinueOnError)
	dir := flags.String("dir", "", "the pool's directory")
	node := flags.String("node", "", "name of the node")
	kubelet := flags.String("kubelet", "/var/lib/kubelet", "the kubelet's directory")
	if err := flags.Parse(args); err != nil {
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
