// Package deviceplugin offers /dev/kvm to the kubelet as an extended resource, so that a launcher pod
// gets the device without any privilege. It serves the kubelet's device plugin API v1beta1 on a socket
// beside the kubelet's own and registers again whenever the kubelet has restarted.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// retry is the time between attempts when the kubelet does not take the registration.
	retry = 5 * time.Second
	// registerTimeout bounds one attempt.
	registerTimeout = 10 * time.Second
)

// Plugin offers Count units of one character device, which any number of processes can share.
type Plugin struct {
	// Resource is the extended resource's name, Device the path on the node and in containers.
	Resource, Device string
	Count            int
	// Dir is the kubelet's device plugin directory, Socket the plugin's file name in it.
	Dir, Socket string
	Log         *slog.Logger

	pluginapi.UnimplementedDevicePluginServer
}

// Run serves and registers until the context ends.
func (p *Plugin) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the kubelet's device plugin directory: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(p.Dir); err != nil {
		return fmt.Errorf("watch the kubelet's device plugin directory: %w", err)
	}
	for ctx.Err() == nil {
		if err := p.serve(ctx, watcher); err != nil && ctx.Err() == nil {
			p.Log.Warn("device plugin starts again", "resource", p.Resource, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(retry):
			}
		}
	}
	return nil
}

// serve runs one server until the kubelet has restarted, which empties the directory.
func (p *Plugin) serve(ctx context.Context, watcher *fsnotify.Watcher) error {
	path := filepath.Join(p.Dir, p.Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop := func(err error) error {
		server.Stop()
		return errors.Join(err, <-done)
	}
	if err := p.register(ctx); err != nil {
		return stop(err)
	}
	p.Log.Info("device plugin registered", "resource", p.Resource)
	for {
		select {
		case <-ctx.Done():
			return stop(nil)
		case err := <-done:
			done <- nil
			return stop(err)
		case err := <-watcher.Errors:
			return stop(err)
		case event := <-watcher.Events:
			switch filepath.Base(event.Name) {
			case filepath.Base(pluginapi.KubeletSocket):
				if event.Has(fsnotify.Create) {
					return stop(nil)
				}
			case p.Socket:
				if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
					return stop(nil)
				}
			}
		}
	}
}

func (p *Plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.Dir, filepath.Base(pluginapi.KubeletSocket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.Socket, ResourceName: p.Resource,
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}

// ListAndWatch sends the units, which never change.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	devices := make([]*pluginapi.Device, p.Count)
	for i := range devices {
		devices[i] = &pluginapi.Device{ID: fmt.Sprintf("%s%d", filepath.Base(p.Device), i), Health: pluginapi.Healthy}
	}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate puts the device into a container. It belongs to root there; virt-handler hands it over.
func (p *Plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Devices: []*pluginapi.DeviceSpec{{HostPath: p.Device, ContainerPath: p.Device, Permissions: "rw"}},
		})
	}
	return response, nil
}

// GetDevicePluginOptions says that nothing beyond Allocate is wanted.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}
