// Package driver is the CSI driver on a pool: the services Identity, Controller and Node of the CSI specification
// (https://github.com/container-storage-interface/spec), version 1.13.
//
//	in:  calls of the sidecars (Controller, one a cluster) and of the kubelet (Node, one a node)
//	out: images in the pool, loop devices, mounts
//
// Every call may come again, also after a kill, and then does what is missing.
package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// The drivers' names. Plain is one that can neither snapshot nor clone nor expand, as some in real clusters: a cluster
// knows that of a driver, not of a class.
const (
	Name  = "csi.virt-local.virtkit.io"
	Plain = "plain.csi.virt-local.virtkit.io"
)

// Version is the version that Identity returns.
const Version = "1.0.0"

// TopologyKey is the label of a node that says where volumes of one node are.
const TopologyKey = "topology.csi.virt-local.virtkit.io/node"

// Parameters of a StorageClass.
const (
	// Placement is `node` for volumes that only one node can use, else all can.
	Placement = "placement"
	// FaultsKey is for tests; see package comment of faults.go. A VolumeSnapshotClass may have it, too.
	FaultsKey = "faults"
)

// Driver serves one of the names.
type Driver struct {
	Name string
	Pool *pool.Pool
	// Node is the name of the node whose kubelet calls Node; empty without.
	Node string

	busy   busy
	faults faults
}

// All returns the drivers on a pool; node is as in Driver.
func All(p *pool.Pool, node string) []*Driver {
	return []*Driver{{Name: Name, Pool: p, Node: node}, {Name: Plain, Pool: p, Node: node}}
}

func (d *Driver) plain() bool { return d.Name == Plain }

// Serve answers at a unix socket until ctx is done.
func (d *Driver) Serve(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("serve CSI: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("serve CSI: %w", err)
	}
	server := d.server()
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve CSI: %w", err)
	}
	return nil
}

func (d *Driver) server() *grpc.Server {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(server, &identity{Driver: d})
	csi.RegisterControllerServer(server, &controller{Driver: d})
	if d.Node != "" {
		csi.RegisterNodeServer(server, &node{Driver: d})
	}
	return server
}

// intercept keeps two calls from working on one thing, injects faults, and logs errors.
func (d *Driver) intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	method, id := methodOf(info.FullMethod), subject(request)
	if id != "" {
		if !d.busy.begin(id) {
			return nil, status.Errorf(codes.Aborted, "another call works on %q", id)
		}
		defer d.busy.end(id)
	}
	err := d.faults.inject(ctx, method, id, d.faultsFor(request))
	var answer any
	if err == nil {
		answer, err = handle(ctx, request)
	}
	if err != nil {
		err = asStatus(err)
		klog.FromContext(ctx).Error(err, "CSI call", "method", method, "volume", id)
		return nil, err
	}
	klog.FromContext(ctx).V(4).Info("CSI call", "method", method, "volume", id)
	return answer, nil
}

// asStatus gives an error the code that CSI has for it.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, pool.ErrFull):
		code = codes.ResourceExhausted
	case errors.Is(err, pool.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, pool.ErrExists):
		code = codes.AlreadyExists
	case errors.Is(err, pool.ErrInUse):
		code = codes.FailedPrecondition
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}

// required returns an error for the first field that is empty; they come as name, value, name, value.
func required(fields ...string) error {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is missing", fields[i])
		}
	}
	return nil
}
