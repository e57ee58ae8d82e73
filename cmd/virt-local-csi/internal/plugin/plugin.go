// Package plugin makes a node's kubelet know the drivers: it serves each at a socket below the kubelet's directory, and
// answers the kubelet's plugin watcher, as the sidecar node-driver-registrar does elsewhere. It is a package of its own
// since package driver is tested, and run by the controller, without a kubelet.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
)

// Run serves the drivers to the kubelet whose directory is given, until ctx is done or one of them fails.
func Run(ctx context.Context, kubelet string, drivers ...*driver.Driver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, 2*len(drivers))
	start := func(i int, do func() error) {
		group.Go(func() {
			defer cancel()
			errs[i] = do()
		})
	}
	for i, d := range drivers {
		socket := filepath.Join(kubelet, "plugins", d.Name, "csi.sock")
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			return fmt.Errorf("serve CSI: %w", err)
		}
		start(2*i, func() error { return d.Serve(ctx, socket) })
		start(2*i+1, func() error { return register(ctx, kubelet, d.Name, socket) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// register answers the kubelet's questions about a driver. The socket's appearance is what the kubelet looks for.
func register(ctx context.Context, kubelet, name, endpoint string) error {
	dir := filepath.Join(kubelet, "plugins_registry")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("register driver %s: %w", name, err)
	}
	socket := filepath.Join(dir, name+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("register driver %s: %w", name, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("register driver %s: %w", name, err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &answers{name: name, endpoint: endpoint})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("register driver %s: %w", name, err)
	}
	return nil
}

type answers struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (a *answers) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: a.name, Endpoint: a.endpoint, SupportedVersions: []string{driver.Version},
	}, nil
}

func (a *answers) NotifyRegistrationStatus(
	ctx context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		klog.FromContext(ctx).Error(errors.New(s.GetError()), "The kubelet refuses the driver", "driver", a.name)
	}
	return new(registration.RegistrationStatusResponse), nil
}
