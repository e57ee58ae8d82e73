package apply

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// rates returns what leaves by links at most, bytes a second; 0 for a link without a limit of ours.
func rates(t *testing.T, ns *os.File, links ...string) (out []uint64) {
	t.Helper()
	run(t, ns, func() error {
		for _, name := range links {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			root, err := rootOf(link)
			if err != nil {
				return err
			}
			bucket, _ := root.(*netlink.Tbf)
			if bucket == nil || bucket.Handle != netlink.MakeHandle(limitMajor, 0) {
				bucket = &netlink.Tbf{}
			}
			out = append(out, bucket.Rate)
		}
		return nil
	})
	return out
}

// The limits of interfaces come, change and go, whether or not they were there; those of other links are left alone.
func TestLimit(t *testing.T) {
	ns := newNetns(t)
	run(t, ns, func() error {
		for _, name := range []string{"eth0", "tap0", "eth1", "tap1"} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return err
			}
		}
		return nil
	})
	plan := network.Plan{Interfaces: []network.Interface{
		{Name: "default", Binding: network.Masquerade, PodLink: "eth0", Tap: "tap0"},
		{Name: "own", Binding: network.Tap, PodLink: "eth1", Tap: "tap1"},
		{Name: "vf", Binding: network.SRIOV},
	}}
	const many = uint64(5) << 32
	for _, step := range []struct {
		limit qos.Interface
		want  [2]uint64
	}{
		{qos.Interface{}, [2]uint64{}},
		{qos.Interface{In: 10 << 20}, [2]uint64{10 << 20, 0}},
		{qos.Interface{In: 20 << 20, Out: qos.MinRate}, [2]uint64{20 << 20, qos.MinRate}},
		{qos.Interface{Out: many}, [2]uint64{0, many}},
		{qos.Interface{In: qos.MaxRate}, [2]uint64{qos.MaxRate, 0}},
		{qos.Interface{}, [2]uint64{}},
	} {
		for range 2 { // it is idempotent
			limits := map[string]qos.Interface{"default": step.limit, "own": step.limit, "vf": step.limit}
			if err := Limit(ns, plan, limits); err != nil {
				t.Fatalf("%+v: %v", step.limit, err)
			}
			got := rates(t, ns, "tap0", "eth0", "tap1", "eth1")
			if [2]uint64(got[:2]) != step.want || got[2]+got[3] != 0 {
				t.Errorf("%+v: %v", step.limit, got)
			}
		}
	}
	if err := Limit(ns, network.Plan{}, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// A queueing discipline that somebody else has put on the link stays, and the error names it.
func TestLimitOfAnothers(t *testing.T) {
	ns := newNetns(t)
	run(t, ns, func() error {
		for _, name := range []string{"eth0", "tap0"} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		foreign := bucket(link.Attrs().Index, 1500, 1<<20)
		foreign.Handle = netlink.MakeHandle(1, 0)
		return netlink.QdiscAdd(foreign)
	})
	plan := network.Plan{Interfaces: []network.Interface{
		{Name: "default", Binding: network.Bridge, PodLink: "eth0", Tap: "tap0"},
	}}
	err := Limit(ns, plan, map[string]qos.Interface{"default": {In: 1 << 20, Out: 1 << 20}})
	const want = `interface "default": limit eth0: the link has another's queueing discipline (tbf 1:0)`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if got := rates(t, ns, "tap0"); got[0] != 1<<20 {
		t.Errorf("the other link has %v", got)
	}
	if err := Limit(ns, plan, nil); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// What leaves by a limited link arrives at its rate: over two seconds no more than the limit and one burst, without
// loss that would keep TCP far below.
func TestLimitHolds(t *testing.T) {
	pod, node := newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "192.0.2.1/24", node, "peer", "192.0.2.2/24")
	run(t, pod, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "tap0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	plan := network.Plan{Interfaces: []network.Interface{
		{Name: "default", Binding: network.Masquerade, PodLink: "eth0", Tap: "tap0"},
	}}
	const limit, long = 2 << 20, 2 * time.Second
	if err := Limit(pod, plan, map[string]qos.Interface{"default": {Out: limit}}); err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	run(t, node, func() (err error) {
		l, err = net.Listen("tcp", "192.0.2.2:7000")
		return err
	})
	defer l.Close()
	var from net.Conn
	run(t, pod, func() (err error) {
		from, err = net.DialTimeout("tcp", "192.0.2.2:7000", time.Minute)
		return err
	})
	began, sent := time.Now(), make(chan struct{})
	go func() {
		defer close(sent)
		for chunk := make([]byte, 64<<10); ; {
			if _, err := from.Write(chunk); err != nil {
				return // the test has closed it
			}
		}
	}()
	defer func() { from.Close(); <-sent }()
	to, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	got, chunk := 0, make([]byte, 64<<10)
	rate := 0.0
	for range 10 { // a busy machine may leave it no time in some of them
		start, since := got, time.Now()
		for time.Since(since) < long {
			n, err := to.Read(chunk)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		if rate = float64(got-start) / time.Since(since).Seconds() / limit; rate >= 0.5 {
			break
		}
	}
	seconds := time.Since(began).Seconds()
	if most := limit*seconds + limit/burstPart; float64(got) > most || rate < 0.5 {
		t.Errorf("%d bytes in %.2f s, with a limit of %d a second, at last %.3f of it", got, seconds, limit, rate)
	}
	t.Logf("%.3f of the limit", rate)
}
