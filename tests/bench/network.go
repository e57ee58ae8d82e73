package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/network/reach"
	"github.com/virtkit/virtkit/tests/bench/report"
)

// served is what guests and the plain pod serve for measurements of networks: forwardSize MiB, and a byte.
const served = forwardData + "echo >/www/one\n"

const (
	// requestsAtOnce is how many requests are made one after the other for a sample.
	requestsAtOnce = 20
	// ofAnchor is how much of the anchor's throughput and rate a network is to have.
	ofAnchor = .8
)

// networks compares connections from a pod to guests behind masquerade and on a bridge with what a guest does without
// any network: from the pod that it is in, at its tap. What pods do among themselves is said, too: a guest that is
// emulated cannot come near it. There are rows for each family of the pods' addresses.
func networks(ctx context.Context, b *bench) (rows []Row, err error) {
	var ends []io.Closer
	defer func() {
		for _, end := range ends {
			err = errors.Join(err, end.Close())
		}
	}()
	pods := map[string]*os.File{} // the network namespaces
	addresses := map[string][]netip.Addr{}
	for _, name := range []string{"asks", "serves"} {
		pod := b.pod("net-" + name)
		if _, err := b.untilRunning(ctx, pod); err != nil {
			return nil, err
		}
		defer func() {
			_, gone := b.untilGone(ctx, pod)
			err = errors.Join(err, gone)
		}()
		if err := b.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return nil, err
		}
		if pods[name], err = podNamespace(pod); err != nil {
			return nil, err
		}
		ends = append(ends, pods[name])
		if addresses[name], err = addressesOf(pod.Status.PodIPs); err != nil {
			return nil, err
		}
	}
	server, err := serveIn(pods["serves"])
	if err != nil {
		return nil, err
	}
	ends = append(ends, server)
	for name, nic := range map[string]*v1.Interface{
		"masquerade": v1.DefaultMasqueradeNetworkInterface(), "bridge": v1.DefaultBridgeNetworkInterface(),
	} {
		vmi := b.vmi("net-" + name)
		vmi.Spec.Domain.Devices.Interfaces[0] = *nic
		withInit(vmi, served)
		v4, v6 := false, false
		for _, a := range addresses["serves"] {
			v4, v6 = v4 || a.Is4(), v6 || !a.Is4()
		}
		vmi.Spec.Volumes[len(vmi.Spec.Volumes)-1].CloudInitNoCloud.NetworkData = fmt.Sprintf(
			"version: 2\nethernets:\n  eth0: {dhcp4: %t, dhcp6: %t}\n", v4, v6)
		gone, err := b.booted(ctx, vmi)
		defer func() { err = errors.Join(err, gone()) }()
		if err != nil {
			return nil, err
		}
		if pods[name], err = b.podNetwork(ctx, vmi); err != nil {
			return nil, err
		}
		ends = append(ends, pods[name])
		pod, err := b.launcherPod(ctx, vmi)
		if err != nil {
			return nil, err
		}
		if addresses[name], err = addressesOf(pod.Status.PodIPs); err != nil {
			return nil, err
		}
	}
	for _, to := range addresses["serves"] {
		of, err := b.family(ctx, pods, addresses, to)
		if err != nil {
			return rows, err
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

// family measures by the family of an address.
func (b *bench) family(
	ctx context.Context, pods map[string]*os.File, addresses map[string][]netip.Addr, like netip.Addr,
) ([]Row, error) {
	at := map[string]netip.Addr{}
	for name, all := range addresses {
		for _, a := range all {
			if a.Is4() == like.Is4() {
				at[name] = a
			}
		}
	}
	inside, ipv := netip.MustParseAddr("10.0.2.2"), "IPv4"
	if !like.Is4() {
		inside, ipv = netip.MustParseAddr("fd10:0:2::2"), "IPv6"
	}
	from := func(ns string, a netip.Addr) func() (net.Conn, error) {
		return func() (net.Conn, error) { return reach.In(ctx, pods[ns], reach.TCP, netip.AddrPortFrom(a, 80)) }
	}
	ways := []struct {
		name, what string
		open       func() (net.Conn, error)
		least      float64 // 0: said for the understanding of the others
	}{
		{"masquerade", "a guest behind masquerade", from("asks", at["masquerade"]), ofAnchor},
		{"bridge", "a guest on a bridge", from("asks", at["bridge"]), ofAnchor},
		{"pod", "a pod", from("asks", at["serves"]), 0},
	}
	const tap = "the guest at its tap"
	bare := from("masquerade", inside)
	carried, asked := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways))
	var bareCarried, bareAsked []time.Duration
	for n := range b.rounds + 1 {
		for i := -1; i < len(ways); i++ {
			open, toCarried, toAsked := bare, &bareCarried, &bareAsked
			if i >= 0 {
				open, toCarried, toAsked = ways[i].open, &carried[i], &asked[i]
			}
			whole, err := fetch(open)
			if err != nil {
				return nil, fmt.Errorf("%s, way %d: %w", ipv, i, err)
			}
			answered, err := requests(open)
			if err != nil {
				return nil, fmt.Errorf("%s, way %d: %w", ipv, i, err)
			}
			if n > 0 { // the first is warm-up
				*toCarried, *toAsked = append(*toCarried, whole), append(*toAsked, answered)
			}
		}
	}
	var rows []Row
	lower := strings.ToLower(ipv)
	for i, way := range ways {
		flow := Row{
			Name: "network-" + way.name + "-throughput-" + lower, Unit: "MiB/s", Versus: tap, Higher: true,
			What: fmt.Sprintf("%s, %d MiB from %s to a pod, median", ipv, forwardSize, way.what),
		}
		flow.Value, flow.Samples = rates(carried[i])
		flow.Anchor, flow.AnchorSamples = rates(bareCarried)
		flow.Ratio = flow.Value / flow.Anchor
		what := fmt.Sprintf("%s, a request of a pod to %s over a new connection, median", ipv, way.what)
		rate := report.Timed("network-"+way.name+"-request-"+lower, what, "ms", asked[i], .5).Beside(tap, bareAsked, .5)
		if way.least > 0 {
			flow, rate = flow.AtLeast(way.least), rate.Times(1/way.least)
		}
		rows = append(rows, flow, rate)
	}
	return rows, nil
}

// rates returns the median of what was fetched in a second, MiB, and all samples.
func rates(took []time.Duration) (median float64, all []float64) {
	for _, d := range took {
		all = append(all, forwardSize/d.Seconds())
	}
	return report.Percentile(all, .5), all
}

// requests makes some requests, each over a new connection, and returns how long one took.
func requests(open func() (net.Conn, error)) (time.Duration, error) {
	start := time.Now()
	for range requestsAtOnce {
		conn, err := open()
		if err != nil {
			return 0, err
		}
		err = conn.SetDeadline(time.Now().Add(patience))
		if err == nil {
			_, err = io.WriteString(conn, "GET /one HTTP/1.0\r\n\r\n")
		}
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
		}
		if err = errors.Join(err, conn.Close()); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / requestsAtOnce, nil
}

// serveIn serves what the guests serve in a network namespace, at port 80.
func serveIn(ns *os.File) (io.Closer, error) {
	type opened struct {
		net.Listener
		error
	}
	listening := make(chan opened, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			listening <- opened{nil, err}
			return
		}
		l, err := net.Listen("tcp", ":80")
		listening <- opened{l, err}
	}()
	l := <-listening
	if l.error != nil {
		return nil, l.error
	}
	mux := http.NewServeMux()
	zeros := make([]byte, forwardSize<<20)
	mux.HandleFunc("GET /zero", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(zeros) })
	mux.HandleFunc("GET /one", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(zeros[:1]) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(l) }() // ends when it is closed
	return server, nil
}

func addressesOf(ips []corev1.PodIP) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// withInit gives a VMI a script that runs when its guest begins.
func withInit(vmi *v1.VirtualMachineInstance, script string) {
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		v1.Disk{Name: "init", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{
		Name:         "init",
		VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: script}},
	})
}
