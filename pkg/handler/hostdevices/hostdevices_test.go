package hostdevices

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mdev = "f3e5c1a0-2f5d-4a43-9a3c-0a6c7c8d9e01"

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: os.ModeSymlink}
}

// machine is a sysfs with two GPUs and their audio function, a NIC of the node's own, a mediated device, and USB.
func machine() fstest.MapFS {
	sys := fstest.MapFS{
		"devices/pci0000:00/0000:00:02.0/" + mdev + "/mdev_type/name": file("GRID T4-1Q\n"),
		"devices/pci0000:00/0000:00:02.0/" + mdev + "/iommu_group":    link("../../../../kernel/iommu_groups/44"),
		"bus/mdev/devices/" +
			mdev: link("../../../devices/pci0000:00/0000:00:02.0/" + mdev),
		"bus/usb/devices/usb1/uevent": file("DEVTYPE=usb_device\n" +
			"DEVNAME=bus/usb/001/001\nPRODUCT=1d6b/2/606\nBUSNUM=001\nDEVNUM=001\n"),
		"bus/usb/devices/1-4:1.0/uevent": file("DEVTYPE=usb_interface\nPRODUCT=46d/c52b/1211\n"),
	}
	pci := func(address, id, driver, group, numa string) {
		dir := "bus/pci/devices/" + address + "/"
		sys[dir+
			"uevent"] = file("DRIVER=" + driver + "\nPCI_CLASS=30000\nPCI_ID=" + id + "\nPCI_SLOT_NAME=" + address +
			"\n")
		sys[dir+"numa_node"] = file(numa + "\n")
		if group != "" {
			sys[dir+"iommu_group"] = link("../../../kernel/iommu_groups/" + group)
		}
	}
	pci("0000:81:00.0", "10DE:1EB8", "vfio-pci", "12", "1")
	pci("0000:81:00.1", "10DE:10F8", "vfio-pci", "12", "1")
	pci("0000:82:00.0", "10DE:1EB8", "nvgrace_gpu_vfio_pci", "13", "-1")
	pci("0000:83:00.0", "10DE:1EB8", "nouveau", "14", "1")
	pci("0000:00:02.0", "10DE:1EB9", "nvidia", "2", "0")
	pci("0000:00:03.0", "1AF4:1000", "virtio-pci", "", "-1")
	usb := func(port, product string, bus, device int) {
		sys["bus/usb/devices/"+port+
			"/uevent"] = file(fmt.Sprintf("DEVTYPE=usb_device\nDEVNAME=bus/usb/%03d/%03d\nPRODUCT=%s\n"+
			"BUSNUM=%03d\nDEVNUM=%03d\n", bus, device, product, bus, device))
	}
	usb("1-4", "46d/c52b/1211", 1, 4)
	usb("1-5.1", "46d/c52b/1211", 1, 9)
	usb("2-1", "951/1666/100", 2, 2)
	return sys
}

// nodes is a /dev with what the machine has.
func nodes() fstest.MapFS {
	return fstest.MapFS{
		"vfio/vfio": file(""), "vfio/12": file(""), "vfio/44": file(""),
		"bus/usb/001/004": file(""), "bus/usb/001/009": file(""), "bus/usb/002/002": file(""),
	}
}

func permitted(t *testing.T, text string) *v1.PermittedHostDevices {
	t.Helper()
	out := &v1.PermittedHostDevices{}
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOffered(t *testing.T) {
	found, err := Find(machine())
	if err != nil {
		t.Fatal(err)
	}
	vfioNodes := func(group string) []string { return []string{"/dev/vfio/vfio", "/dev/vfio/" + group} }
	for name, tc := range map[string]struct {
		permitted string
		want      map[string]Offered
	}{
		"nothing": {"{}", map[string]Offered{}},
		"GPUs": {
			"{pciHostDevices: [{pciVendorSelector: '10de:1EB8', resourceName: v/gpu}]}",
			map[string]Offered{"v/gpu": {"PCI_RESOURCE_V_GPU", []deviceplugin.Unit{
				{ID: "12", Healthy: true, NUMA: 1, Nodes: vfioNodes("12"), Names: []string{"0000:81:00.0"}},
				// its device node is missing
				{ID: "13", Healthy: false, NUMA: -1, Nodes: vfioNodes("13"), Names: []string{"0000:82:00.0"}},
			}}},
		},
		"one resource for both functions": {
			"{pciHostDevices: [{pciVendorSelector: '10de:10f8', resourceName: v/x}, " +
				"{pciVendorSelector: '10de:1eb8', resourceName: v/x}]}",
			map[string]Offered{"v/x": {"PCI_RESOURCE_V_X", []deviceplugin.Unit{
				{ID: "12", Healthy: true, NUMA: 1, Nodes: vfioNodes("12"), Names: []string{"0000:81:00.1"}},
				{ID: "13", Healthy: false, NUMA: -1, Nodes: vfioNodes("13"), Names: []string{"0000:82:00.0"}},
			}}},
		},
		"others'": {
			"{pciHostDevices: [{pciVendorSelector: '10de:1eb8', resourceName: v/gpu, externalResourceProvider: true}]}",
			map[string]Offered{},
		},
		"the node's own": {
			"{pciHostDevices: [{pciVendorSelector: '1af4:1000', resourceName: v/nic}]}", map[string]Offered{},
		},
		"mediated device": {
			"{mediatedDevices: [{mdevNameSelector: GRID T4-1Q, resourceName: v/part}, " +
				"{mdevNameSelector: GRID T4-2Q, resourceName: v/other}]}",
			map[string]Offered{
				"v/part": {
					"MDEV_PCI_RESOURCE_V_PART",
					[]deviceplugin.Unit{
						{ID: "44", Healthy: true, NUMA: 0, Nodes: vfioNodes("44"), Names: []string{mdev}},
					},
				},
			},
		},
		"USB": {
			"{usb: [{resourceName: v/kit, selectors: [{vendor: 046d, product: c52b}, {vendor: '0951', " +
				"product: '1666'}]}, {resourceName: v/key, selectors: [{vendor: 46D, product: C52B}]}]}",
			map[string]Offered{
				"v/kit": {
					"USB_RESOURCE_V_KIT",
					[]deviceplugin.Unit{
						{
							ID: "1-4+2-1", Healthy: true, NUMA: -1,
							Nodes: []string{"/dev/bus/usb/001/004", "/dev/bus/usb/002/002"},
							Names: []string{"1:4", "2:2"},
						},
					},
				},
				"v/key": {
					"USB_RESOURCE_V_KEY",
					[]deviceplugin.Unit{
						{
							ID: "1-5.1", Healthy: true, NUMA: -1, Nodes: []string{"/dev/bus/usb/001/009"},
							Names: []string{"1:9"},
						},
					},
				},
			},
		},
		"USB without selectors": {"{usb: [{resourceName: v/kit}]}", map[string]Offered{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := found.Offered(permitted(t, tc.permitted), nodes()); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestFindNothing(t *testing.T) {
	if found, err := Find(fstest.MapFS{}); err != nil || !reflect.DeepEqual(found, Found{}) {
		t.Errorf("found %+v, %v", found, err)
	}
	sys := machine()
	delete(sys, "bus/pci/devices/0000:82:00.0/iommu_group")
	sys["bus/pci/devices/0000:81:00.0/numa_node"] = file("many")
	found, err := Find(sys)
	if err == nil || len(found.pci) != 1 || len(found.usb) != 3 {
		t.Errorf("found %+v, %v", found, err)
	}
}

// kubelet takes registrations.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan *pluginapi.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- r
	return &pluginapi.Empty{}, nil
}

// TestOffers has a kubelet register a resource when it is permitted, hear of its devices as they come and go, get one,
// and lose the plugin when the resource is not permitted any more.
func TestOffers(t *testing.T) {
	dir, err := os.MkdirTemp("", "hd") //nolint:usetesting // short, for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	k := &kubelet{registered: make(chan *pluginapi.RegisterRequest, 10)}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	defer running.Wait()
	defer server.Stop()

	var mu sync.Mutex
	var allowed *v1.PermittedHostDevices
	changed, ticks := make(chan struct{}), make(chan time.Time)
	allow := func(devices *v1.PermittedHostDevices) {
		mu.Lock()
		allowed = devices
		mu.Unlock()
		changed <- struct{}{}
	}
	sys := machine()
	offers := &Offers{
		Permitted: func() *v1.PermittedHostDevices { mu.Lock(); defer mu.Unlock(); return allowed },
		Changed:   changed, Sys: sys, Dev: nodes(), Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Tick: func() (<-chan time.Time, func()) { return ticks, func() {} },
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	running.Go(func() {
		if err := offers.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	defer cancel()

	keys := permitted(t,
		"{usb: [{resourceName: v/key, selectors: [{vendor: 046d, product: c52b}]}], "+
			"pciHostDevices: [{pciVendorSelector: 'ffff:0000', resourceName: v/none}]}")
	allow(keys)
	var registered *pluginapi.RegisterRequest
	select {
	case registered = <-k.registered:
	case <-ctx.Done():
		t.Fatal("nothing is registered")
	}
	if registered.ResourceName != "v/key" || registered.Endpoint != socket("v/key") {
		t.Fatalf("registered %+v", registered)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, registered.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	plugin := pluginapi.NewDevicePluginClient(conn)
	list, err := plugin.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	health := func() map[string]string {
		t.Helper()
		answer, err := list.Recv()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, d := range answer.Devices {
			out[d.ID] = d.Health
		}
		return out
	}
	if got, want := health(), map[string]string{"1-4": "Healthy", "1-5.1": "Healthy"}; !reflect.DeepEqual(got, want) {
		t.Errorf("devices %v", got)
	}
	given, err := plugin.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"1-5.1"}}},
	})
	if err != nil || len(given.ContainerResponses) != 1 ||
		given.ContainerResponses[0].Envs["USB_RESOURCE_V_KEY"] != "1:9" ||
		given.ContainerResponses[0].Devices[0].HostPath != "/dev/bus/usb/001/009" {
		t.Errorf("given %v, %v", given, err)
	}
	delete(sys, "bus/usb/devices/1-4/uevent") // the loop is between two looks
	ticks <- time.Now()
	if got, want := health(), map[string]string{"1-4": "Unhealthy", "1-5.1": "Healthy"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after it was unplugged: %v", got)
	}
	allow(nil)
	if _, err := list.Recv(); err == nil {
		t.Error("the plugin goes on though nothing is permitted")
	}
	changed <- struct{}{} // the look before has ended
	if _, err := os.Lstat(filepath.Join(dir, registered.Endpoint)); !os.IsNotExist(err) {
		t.Errorf("its socket is still there: %v", err)
	}
}
