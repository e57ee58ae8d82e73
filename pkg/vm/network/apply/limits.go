package apply

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

const (
	// limitMajor is the major number of our queueing disciplines' handles, by which they are known from others'.
	limitMajor = 0x7171
	// burstPart is the part of a second whose bytes may pass at once after a pause, latencyPart that for which more
	// wait before they are dropped. minQueue may wait at any rate, bytes: as much as a guest offloads in one packet.
	burstPart, latencyPart = 10, 10
	minQueue               = 64 << 10
)

// Limit gives the interfaces of a plan their rate limits in the network namespace ns, and takes those of before away.
// It shapes with the kernel's token bucket (tbf), so that TCP finds its rate without loss: what the guest receives as
// it leaves the pod's side of the tap, and what the guest sends as it leaves the pod by the interface's link. QEMU and
// libvirt in the pod may do neither, since both need CAP_NET_ADMIN.
func Limit(ns *os.File, plan network.Plan, limits map[string]qos.Interface) error {
	if len(plan.Interfaces) == 0 {
		return nil
	}
	return In(ns, func() error {
		var failed error
		for _, nic := range plan.Interfaces {
			if nic.Binding != network.Masquerade && nic.Binding != network.Bridge {
				continue
			}
			limit := limits[nic.Name]
			for _, way := range []struct {
				link string
				rate uint64
			}{{nic.Tap, limit.In}, {nic.PodLink, limit.Out}} {
				if err := shape(way.link, way.rate); err != nil {
					failed = errors.Join(failed, fmt.Errorf("interface %q: limit %s: %w", nic.Name, way.link, err))
				}
			}
		}
		return failed
	})
}

// shape bounds what leaves by a link to a rate in bytes a second; 0 is no limit.
func shape(name string, rate uint64) error {
	link, err := netlink.LinkByName(name)
	if gone := (netlink.LinkNotFoundError{}); rate == 0 && errors.As(err, &gone) {
		return nil
	} else if err != nil {
		return fmt.Errorf("find the link: %w", err)
	}
	root, err := rootOf(link)
	if err != nil {
		return err
	}
	ours := root != nil && root.Attrs().Handle == netlink.MakeHandle(limitMajor, 0)
	switch {
	case rate == 0 && !ours:
		return nil
	case rate == 0:
		return netlink.QdiscDel(root)
	case root != nil && !ours && root.Attrs().Handle != 0: // the kernel's own have no number
		return fmt.Errorf("the link has another's queueing discipline (%s %s)", root.Type(),
			netlink.HandleStr(root.Attrs().Handle))
	}
	want := bucket(link.Attrs().Index, link.Attrs().MTU, rate)
	if has, ok := root.(*netlink.Tbf); ok && ours && has.Rate == want.Rate && has.Limit == want.Limit {
		return nil
	}
	return explain(netlink.QdiscReplace(want))
}

// explain says what the kernel means by an error with which it refuses a queueing discipline.
func explain(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return errors.New("the node's kernel has no token bucket (sch_tbf), by which interfaces are limited")
	}
	return err
}

// rootOf returns a link's root queueing discipline, nil for none.
func rootOf(link netlink.Link) (netlink.Qdisc, error) {
	list, err := netlink.QdiscList(link)
	if err != nil {
		return nil, fmt.Errorf("list queueing disciplines: %w", err)
	}
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q, nil
		}
	}
	return nil, nil
}

// bucket returns a token bucket of a rate. A packet of the link must fit in; the kernel cuts larger ones that the guest
// offloads.
func bucket(index, mtu int, rate uint64) *netlink.Tbf {
	burst := min(max(rate/burstPart, 2*uint64(max(mtu, 0))), math.MaxUint32)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(limitMajor, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate:   rate,
		Limit:  uint32(min(burst+max(rate/latencyPart, minQueue), math.MaxUint32)),
		Buffer: netlink.Xmittime(rate, uint32(burst)),
	}
}
