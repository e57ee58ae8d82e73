package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

const (
	infoReply = `{"return":{"version":"10.0.2","supported_commands":[{"enabled":true,"name":"guest-ping","success-response":true}]}}`
	osReply   = `{"return":{"name":"Debian GNU/Linux","kernel-release":"6.1.0-56-cloud-amd64","version":"12 (bookworm)","pretty-name":"Debian GNU/Linux 12 (bookworm)","version-id":"12","kernel-version":"#1 SMP","machine":"x86_64","id":"debian"}}`
	netReply  = `{"return":[
		{"name":"lo","ip-addresses":[{"ip-address-type":"ipv4","ip-address":"127.0.0.1","prefix":8}],"hardware-address":"00:00:00:00:00:00"},
		{"name":"eth0","ip-addresses":[{"ip-address-type":"ipv4","ip-address":"10.0.2.2","prefix":24},{"ip-address-type":"ipv6","ip-address":"fe80::1","prefix":64},{"ip-address-type":"ipv6","ip-address":"fd00::2","prefix":64}],"hardware-address":"02:00:00:AA:BB:CC"},
		{"name":"eth1","hardware-address":"02:00:00:00:00:01"}]}`
	freezeReply = `{"return":"thawed"}`
)

func TestAsk(t *testing.T) {
	replies := map[string]string{
		`{"execute":"guest-info"}`: infoReply, `{"execute":"guest-get-osinfo"}`: osReply,
		`{"execute":"guest-network-get-interfaces"}`: netReply, `{"execute":"guest-fsfreeze-status"}`: freezeReply,
	}
	got, err := Ask(func(c string) (string, error) { return replies[c], nil })
	if err != nil {
		t.Fatal(err)
	}
	want := Report{
		Version: "10.0.2",
		OS: &v1.VirtualMachineInstanceGuestOSInfo{
			Name: "Debian GNU/Linux", KernelRelease: "6.1.0-56-cloud-amd64", Version: "12 (bookworm)", PrettyName: "Debian GNU/Linux 12 (bookworm)",
			VersionID: "12", KernelVersion: "#1 SMP", Machine: "x86_64", ID: "debian",
		},
		Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
			{InterfaceName: "eth0", MAC: "02:00:00:aa:bb:cc", IP: "10.0.2.2", IPs: []string{"10.0.2.2", "fd00::2"}, InfoSource: "guest-agent"},
			{InterfaceName: "eth1", MAC: "02:00:00:00:00:01", InfoSource: "guest-agent"},
		},
		FreezeStatus: "thawed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAskOldAgent(t *testing.T) {
	got, err := Ask(func(c string) (string, error) {
		if strings.Contains(c, "guest-info") {
			return infoReply, nil
		}
		return "", errors.New("the command guest-get-osinfo has not been found")
	})
	if err != nil || got.Version != "10.0.2" || got.OS != nil || got.Interfaces != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Ask(func(string) (string, error) { return "", errors.New("gone") }); err == nil {
		t.Error("no error from an agent that does not answer")
	}
}

func TestHostileReplies(t *testing.T) {
	for _, reply := range []string{"", "null", "[]", `{}`, `{"return":7}`, `{"return":{"version":7}}`, strings.Repeat("x", maxReply+1)} {
		if v, err := ParseVersion(reply); err == nil {
			t.Errorf("%.40q gave %q", reply, v)
		}
	}
	if _, err := ParseFreezeStatus(`{"return":"melted"}`); err == nil {
		t.Error("an unknown freeze status was believed")
	}
	v, err := ParseVersion(`{"return":{"version":"\u001b[2J` + strings.Repeat("v", 1000) + `"}}`)
	if err != nil || strings.ContainsRune(v, 0x1b) || len(v) > maxString {
		t.Errorf("%q, %v", v, err)
	}
	many := `{"return":[` + strings.Repeat(`{"name":"e"},`, 1000) + `{"name":"e"}]}`
	if n, err := ParseInterfaces(many); err != nil || len(n) != maxInterfaces {
		t.Errorf("%d interfaces, %v", len(n), err)
	}
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{infoReply, osReply, netReply, freezeReply} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		r, err := Ask(func(string) (string, error) { return reply, nil })
		if err == nil && len(r.Interfaces) > maxInterfaces {
			t.Error("too many interfaces")
		}
	})
}
