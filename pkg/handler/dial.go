package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network/reach"
)

// DialGuest connects to a port of a guest on this node from its pod's network. protocol is tcp or udp. Errors are
// reach.Guest's, or say why there is no guest to dial.
func (r *Reconciler) DialGuest(
	ctx context.Context, vmi types.NamespacedName, protocol string, port uint16,
) (net.Conn, error) {
	s := r.followed(vmi)
	if s == nil {
		return nil, fmt.Errorf("VirtualMachineInstance %s does not run on node %s", vmi, r.Node.Name)
	}
	known, err := r.addresses(ctx, s.target)
	if err != nil {
		return nil, err
	}
	return s.dialGuest(ctx, known, protocol, port)
}

// addresses returns the addresses of a launcher's pod and its node by the pod's status.
func (r *Reconciler) addresses(ctx context.Context, t target) (reach.Known, error) {
	var known reach.Known
	var list corev1.PodList
	err := r.Cached.List(ctx, &list, client.InNamespace(t.VMI.Namespace), client.MatchingLabels{
		names.LabelComponent: names.VirtLauncher, v1.CreatedByLabel: string(t.UID),
	})
	if err != nil {
		return known, fmt.Errorf("list launcher pods: %w", err)
	}
	for _, pod := range list.Items {
		if pod.UID != t.Pod {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			known.Pod = appendAddress(known.Pod, ip.IP)
		}
		known.Node = appendAddress(known.Node, pod.Status.HostIP)
		for _, ip := range pod.Status.HostIPs {
			known.Node = appendAddress(known.Node, ip.IP)
		}
	}
	return known, nil
}

// appendAddress leaves out text that is no IP address.
func appendAddress(to []netip.Addr, text string) []netip.Addr {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return to
	}
	return append(to, address.Unmap())
}

// Runs returns the UID of the VMI of that name whose guest is on this node and has not moved away; empty when there is
// none.
func (r *Reconciler) Runs(vmi types.NamespacedName) types.UID {
	s := r.followed(vmi)
	if s == nil || moved(s.observation().Guest) {
		return ""
	}
	return s.target.UID
}

func (s *session) dialGuest(ctx context.Context, known reach.Known, protocol string, port uint16) (net.Conn, error) {
	plan := s.observation().Plan
	if plan == nil {
		// A session that found its guest shutting down has made none.
		var err error
		if plan, err = s.node.plans.Load(s.target.Pod); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	if plan == nil || s.process == nil {
		s.mu.Unlock()
		return nil, errors.New("the launcher does not answer yet; try again in a moment")
	}
	// Under the lock, since the process is released with the session's connection.
	ns, err := s.process.Netns()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	node, err := os.Open(filepath.Join(s.node.ProcDir, "1/ns/net"))
	if err != nil {
		return nil, fmt.Errorf("open the node's network namespace: %w", err)
	}
	defer node.Close()
	return reach.Guest(ctx, ns, node, *plan, known, protocol, port)
}
