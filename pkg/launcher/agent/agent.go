// Package agent speaks to qemu-guest-agent: it makes the commands and reads the replies. The replies come from inside
// the guest, so they may be anything: they are bounded, and one that does not parse counts as no answer.
package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Report is the agent's report on its guest; fields that it leaves out are empty.
type Report struct {
	Version      string
	Lacks        []string // see ParseLacks
	OS           *v1.VirtualMachineInstanceGuestOSInfo
	Interfaces   []v1.VirtualMachineInstanceNetworkInterface
	FreezeStatus string
}

// Limits of what is believed of a guest: interfaces, addresses an interface, bytes of a string and of a
// whole reply.
const (
	maxInterfaces = 64
	maxAddresses  = 64
	maxString     = 256
	maxReply      = 1 << 20
)

// source is KubeVirt's name for the agent as a source of information.
const source = "guest-agent"

// Ask asks everything through send, which takes a command and returns its reply. It fails when the first command does,
// which every agent knows; later ones may be unknown to the agent.
func Ask(send func(command string) (string, error)) (Report, error) {
	var r Report
	reply, err := send(`{"execute":"guest-info"}`)
	if err != nil {
		return r, err
	}
	if r.Version, err = ParseVersion(reply); err != nil {
		return r, err
	}
	if r.Lacks, err = ParseLacks(reply); err != nil {
		return r, err
	}
	if reply, err := send(`{"execute":"guest-get-osinfo"}`); err == nil {
		if r.OS, err = ParseOS(reply); err != nil {
			return r, err
		}
	}
	if reply, err := send(`{"execute":"guest-network-get-interfaces"}`); err == nil {
		if r.Interfaces, err = ParseInterfaces(reply); err != nil {
			return r, err
		}
	}
	if reply, err := send(`{"execute":"guest-fsfreeze-status"}`); err == nil {
		if r.FreezeStatus, err = ParseFreezeStatus(reply); err != nil {
			return r, err
		}
	}
	return r, nil
}

// unwrap reads {"return": …}.
func unwrap(reply string, into any) error { return unwrapUpTo(maxReply, reply, into) }

func unwrapUpTo(limit int, reply string, into any) error {
	if len(reply) > limit {
		return fmt.Errorf("the guest agent's reply has %d bytes, more than %d", len(reply), limit)
	}
	var r struct {
		Return json.RawMessage `json:"return"`
	}
	if err := json.Unmarshal([]byte(reply), &r); err != nil {
		return fmt.Errorf("read the guest agent's reply: %w", err)
	}
	if len(r.Return) == 0 {
		return errors.New("read the guest agent's reply: it has no return value")
	}
	if err := json.Unmarshal(r.Return, into); err != nil {
		return fmt.Errorf("read the guest agent's reply: %w", err)
	}
	return nil
}

// ParseVersion reads the reply to guest-info.
func ParseVersion(reply string) (string, error) {
	var r struct {
		Version string `json:"version"`
	}
	err := unwrap(reply, &r)
	return clean(r.Version), err
}

// ParseOS reads the reply to guest-get-osinfo.
func ParseOS(reply string) (*v1.VirtualMachineInstanceGuestOSInfo, error) {
	var r struct {
		Name          string `json:"name"`
		KernelRelease string `json:"kernel-release"`
		Version       string `json:"version"`
		PrettyName    string `json:"pretty-name"`
		VersionID     string `json:"version-id"`
		KernelVersion string `json:"kernel-version"`
		Machine       string `json:"machine"`
		ID            string `json:"id"`
	}
	if err := unwrap(reply, &r); err != nil {
		return nil, err
	}
	return &v1.VirtualMachineInstanceGuestOSInfo{
		Name:          clean(r.Name),
		KernelRelease: clean(r.KernelRelease),
		Version:       clean(r.Version),
		PrettyName:    clean(r.PrettyName),
		VersionID:     clean(r.VersionID),
		KernelVersion: clean(r.KernelVersion),
		Machine:       clean(r.Machine),
		ID:            clean(r.ID),
	}, nil
}

// ParseInterfaces reads the reply to guest-network-get-interfaces, without loopbacks.
func ParseInterfaces(reply string) ([]v1.VirtualMachineInstanceNetworkInterface, error) {
	var r []struct {
		Name      string `json:"name"`
		MAC       string `json:"hardware-address"`
		Addresses []struct {
			Type    string `json:"ip-address-type"`
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := unwrap(reply, &r); err != nil {
		return nil, err
	}
	out := []v1.VirtualMachineInstanceNetworkInterface{}
	for _, i := range r {
		if len(out) == maxInterfaces {
			break
		}
		n := v1.VirtualMachineInstanceNetworkInterface{
			InterfaceName: clean(i.Name),
			MAC:           strings.ToLower(clean(i.MAC)),
			InfoSource:    source,
		}
		loopback := false
		for _, a := range i.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err != nil || len(n.IPs) == maxAddresses {
				continue
			}
			loopback = loopback || ip.IsLoopback()
			// An address of the link alone says nothing to anybody else.
			if !ip.IsLinkLocalUnicast() {
				n.IPs = append(n.IPs, ip.WithZone("").String())
			}
		}
		if loopback {
			continue
		}
		if len(n.IPs) > 0 {
			n.IP = n.IPs[0]
		}
		out = append(out, n)
	}
	return out, nil
}

// ParseFreezeStatus reads the reply to guest-fsfreeze-status: thawed or frozen.
func ParseFreezeStatus(reply string) (string, error) {
	var r string
	if err := unwrap(reply, &r); err != nil {
		return "", err
	}
	if r != "thawed" && r != "frozen" {
		return "", fmt.Errorf("read the guest agent's reply: unknown freeze status %q", clean(r))
	}
	return r, nil
}

// ParseFrozen reads the reply to guest-fsfreeze-freeze: how many file systems it has frozen.
func ParseFrozen(reply string) (int, error) {
	var n int
	if err := unwrap(reply, &n); err != nil {
		return 0, err
	}
	return n, nil
}

// clean shortens a string and drops what does not print; it ends up in status fields and terminals.
func clean(s string) string {
	if len(s) > maxString {
		s = s[:maxString]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
