// Package deviceplugin offers devices of the node to the kubelet as extended resources, so that a launcher pod
// gets them without any privilege. It serves the kubelet's device plugin API v1beta1 on a socket
// beside the kubelet's own and registers again whenever the kubelet has restarted.
//
//	Shared (/dev/kvm) ──┐
//	                    ├─ Offer ─► Plugin ─► kubelet
//	Pool (PCI, USB, …) ─┘
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

// Offer describes the devices of a plugin.
type Offer interface {
	// Devices returns the present devices; changed is closed when they may have changed.
	Devices() (devices []*pluginapi.Device, changed <-chan struct{})
	// Allocate gives a container the devices of these IDs.
	Allocate(ids []string) (*pluginapi.ContainerAllocateResponse, error)
}

// Plugin offers an extended resource.
type Plugin struct {
	// Resource is the extended resource's name.
	Resource string
	Offer    Offer
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
			p.Log.Warn("device plugin starts again", "resource", p.Resource, "err", err)
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

// ListAndWatch sends the devices, and sends them again when they have changed.
func (p *Plugin) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	for {
		devices, changed := p.Offer.Devices()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate puts devices into containers. They belong to root there; virt-handler hands them over.
func (p *Plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given, err := p.Offer.Allocate(container.DevicesIds)
		if err != nil {
			return nil, fmt.Errorf("allocate %s: %w", p.Resource, err)
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}

// GetDevicePluginOptions returns that nothing beyond Allocate is wanted.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}
