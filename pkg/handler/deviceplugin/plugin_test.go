package deviceplugin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubelet takes registrations.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan *pluginapi.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- r
	return &pluginapi.Empty{}, nil
}

// start serves the kubelet's socket until the function returned is called.
func (k *kubelet) start(t *testing.T, dir string) func() {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	return func() { server.Stop(); <-done }
}

func (k *kubelet) wantRegistration(t *testing.T) {
	t.Helper()
	select {
	case r := <-k.registered:
		if r.ResourceName != names.ResourceKVM || r.Version != "v1beta1" || r.Endpoint != "kvm.sock" {
			t.Fatalf("registered %+v", r)
		}
	case <-time.After(time.Minute):
		t.Fatal("no registration")
	}
}

func TestPlugin(t *testing.T) {
	dir, err := os.MkdirTemp("", "dp") //nolint:usetesting // short, for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	k := &kubelet{registered: make(chan *pluginapi.RegisterRequest, 10)}
	stop := k.start(t, dir)
	p := &Plugin{
		Resource: names.ResourceKVM, Offer: Shared{Device: "/dev/kvm", Count: 3}, Dir: dir, Socket: "kvm.sock",
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	k.wantRegistration(t)

	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kvm.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pluginapi.NewDevicePluginClient(conn)
	list, err := client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := list.Recv()
	if err != nil || len(devices.Devices) != 3 || devices.Devices[2].ID != "kvm2" ||
		devices.Devices[2].Health != pluginapi.Healthy {
		t.Errorf("devices %v, %v", devices, err)
	}
	got, err := client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"kvm1"}}},
	})
	if err != nil || len(got.ContainerResponses) != 1 ||
		got.ContainerResponses[0].Devices[0].ContainerPath != "/dev/kvm" {
		t.Errorf("allocated %v, %v", got, err)
	}

	// A kubelet that restarts removes all sockets and knows of no plugin.
	stop()
	_ = os.Remove(filepath.Join(dir, "kvm.sock"))
	stop = k.start(t, dir)
	defer func() { stop() }()
	k.wantRegistration(t)
	if _, err := os.Lstat(filepath.Join(dir, "kvm.sock")); err != nil {
		t.Errorf("after registering again: %v", err)
	}
}
