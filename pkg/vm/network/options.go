package network

import (
	"fmt"
	"net/netip"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// maxQueues is the most queues that a tap has (the kernel's MAX_TAP_QUEUES), and KubeVirt's limit.
const maxQueues = 256

// Options that DHCP leaves to sites (RFC 3942).
const (
	firstPrivate = 224
	lastPrivate  = 254
)

// queues returns how many queues an interface has: one for each vCPU where the VMI asks for several; 0 means one.
func queues(domain *v1.DomainSpec, nic v1.Interface) uint {
	many := domain.Devices.NetworkInterfaceMultiQueue
	if many == nil || !*many || nic.Model != "" && nic.Model != v1.VirtIO {
		return 0
	}
	n := min(sizing.VCPUs(domain), maxQueues)
	if n == 1 {
		return 0
	}
	return uint(n)
}

func dhcpOptions(o *v1.DHCPOptions) (*DHCPOptions, error) {
	if o == nil {
		return nil, nil
	}
	out := &DHCPOptions{BootFile: o.BootFileName, TFTPServer: o.TFTPServerName}
	for _, text := range o.NTPServers {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is4() {
			return nil, fmt.Errorf("dhcpOptions.ntpServers: %q is not an IPv4 address", text)
		}
		out.NTP = append(out.NTP, a)
	}
	for _, p := range o.PrivateOptions {
		if p.Option < firstPrivate || p.Option > lastPrivate {
			return nil, fmt.Errorf("dhcpOptions.privateOptions: %d is not an option from %d to %d", p.Option,
				firstPrivate, lastPrivate)
		}
		out.Private = append(out.Private, PrivateOption{Code: uint8(p.Option), Value: p.Value})
	}
	return out, nil
}
