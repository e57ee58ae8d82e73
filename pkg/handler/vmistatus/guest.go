package vmistatus

import (
	"encoding/json"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	v1 "kubevirt.io/api/core/v1"
)

// What a guest says is limited, so that it can fill neither the API server nor a terminal: bytes of
// a text, of JSON, and numbers of interfaces and addresses.
const (
	maxText       = 256
	maxJSON       = 256 << 10
	maxInterfaces = 64
	maxAddresses  = 32
)

// clean truncates a text that a guest or launcher chose and removes its control characters.
func clean(s string) string {
	if len(s) > 4*maxText {
		s = s[:4*maxText]
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > maxText {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// guestOS reads what the agent says of the operating system; what is not JSON is nothing.
func guestOS(data []byte) v1.VirtualMachineInstanceGuestOSInfo {
	var info v1.VirtualMachineInstanceGuestOSInfo
	if len(data) == 0 || len(data) > maxJSON || json.Unmarshal(data, &info) != nil {
		return v1.VirtualMachineInstanceGuestOSInfo{}
	}
	for _, s := range []*string{
		&info.Name, &info.KernelRelease, &info.Version, &info.PrettyName,
		&info.VersionID, &info.KernelVersion, &info.Machine, &info.ID,
	} {
		*s = clean(*s)
	}
	return info
}

// agentInterfaces reads what the agent says of the guest's links, loopback left out.
func agentInterfaces(data []byte) []v1.VirtualMachineInstanceNetworkInterface {
	var all []v1.VirtualMachineInstanceNetworkInterface
	if len(data) == 0 || len(data) > maxJSON || json.Unmarshal(data, &all) != nil {
		return nil
	}
	var out []v1.VirtualMachineInstanceNetworkInterface
	for _, i := range all {
		if i.InterfaceName == "lo" || len(out) == maxInterfaces {
			continue
		}
		i.InterfaceName, i.MAC = clean(i.InterfaceName), strings.ToLower(clean(i.MAC))
		var ips []string
		for _, s := range i.IPs {
			if ip, err := netip.ParseAddr(s); err == nil && len(ips) < maxAddresses {
				ips = append(ips, ip.String())
			}
		}
		out = append(out, v1.VirtualMachineInstanceNetworkInterface{
			InterfaceName: i.InterfaceName, MAC: i.MAC, IPs: ips,
		})
	}
	return out
}
