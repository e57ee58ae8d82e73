package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
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
	if !slices.Contains(got.Lacks, "guest-shutdown") || slices.Contains(got.Lacks, "guest-ping") {
		t.Errorf("lacks %v", got.Lacks)
	}
	got.Lacks = nil
	want := Report{
		Version: "10.0.2",
		OS: &v1.VirtualMachineInstanceGuestOSInfo{
			Name: "Debian GNU/Linux", KernelRelease: "6.1.0-56-cloud-amd64", Version: "12 (bookworm)",
			PrettyName: "Debian GNU/Linux 12 (bookworm)",
			VersionID:  "12", KernelVersion: "#1 SMP", Machine: "x86_64", ID: "debian",
		},
		Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
			{
				InterfaceName: "eth0", MAC: "02:00:00:aa:bb:cc", IP: "10.0.2.2", IPs: []string{"10.0.2.2", "fd00::2"},
				InfoSource: "guest-agent",
			},
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
	for _, reply := range []string{
		"", "null", "[]", `{}`, `{"return":7}`, `{"return":{"version":7}}`, strings.Repeat("x", maxReply+1),
	} {
		if v, err := ParseVersion(reply); err == nil {
			t.Errorf("%.40q gave %q", reply, v)
		}
	}
	if _, err := ParseFreezeStatus(`{"return":"melted"}`); err == nil {
		t.Error("an unknown freeze status was believed")
	}
	for _, reply := range []string{"", `{"return":"2"}`, `{"return":1e99}`, `{"return":1.5}`, `{"return":{}}`} {
		if n, err := ParseFrozen(reply); err == nil {
			t.Errorf("%q: %d file systems are frozen", reply, n)
		}
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

func TestAskInfo(t *testing.T) {
	replies := map[string]string{
		"guest-info": infoReply, "guest-get-osinfo": osReply,
		"guest-get-host-name": `{"return":{"host-name":"web\u001b"}}`,
		"guest-get-timezone":  `{"return":{"zone":"CET","offset":3600}}`,
		"guest-get-users": `{"return":[{"user":"root","login-time":1.5}` + strings.Repeat(`,{"user":"x"}`, 1000) +
			`]}`,
		"guest-get-fsinfo": `{"return":[{"name":"vda1","mountpoint":"/","type":"ext4","used-bytes":1,"total-bytes":2,"disk":[{"serial":"s","bus-type":"virtio"}]}]}`,
	}
	info, err := AskInfo(func(c string) (string, error) {
		for name, reply := range replies {
			if strings.Contains(c, `"`+name+`"`) {
				return reply, nil
			}
		}
		return "", errors.New("unknown")
	})
	if err != nil {
		t.Fatal(err)
	}
	if info.GAVersion != "10.0.2" || info.Hostname != "web" || info.Timezone != "CET, 3600" || info.OS.ID != "debian" ||
		len(info.UserList) != maxUsers || info.UserList[0].LoginTime != 1.5 {
		t.Errorf("%+v", info)
	}
	want := []v1.VirtualMachineInstanceFileSystem{{
		DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", UsedBytes: 1, TotalBytes: 2,
		Disk: []v1.VirtualMachineInstanceFileSystemDisk{{Serial: "s", BusType: "virtio"}},
	}}
	if diff := cmp.Diff(want, info.FSInfo.Filesystems); diff != "" {
		t.Error(diff)
	}
	if _, err := AskInfo(func(string) (string, error) { return "", errors.New("gone") }); err == nil {
		t.Error("no error from an agent that does not answer")
	}
}

func TestCheckExec(t *testing.T) {
	for name, tc := range map[string]struct {
		command []string
		input   int
		want    string
	}{
		"fine":     {[]string{"id", ""}, 1, ""},
		"nothing":  {nil, 0, "no command"},
		"unnamed":  {[]string{""}, 0, "no command"},
		"NUL":      {[]string{"a\x00"}, 0, "NUL"},
		"many":     {make([]string, surface.MaxCommandWords+1), 0, "no command"},
		"long":     {[]string{"a", strings.Repeat("x", surface.MaxCommandBytes)}, 0, "bytes; the most"},
		"input":    {[]string{"a"}, 3 << 20, "standard input"},
		"manyful":  {append([]string{"a"}, make([]string, surface.MaxCommandWords)...), 0, "words"},
		"just fit": {[]string{"a"}, 2 << 20, ""},
	} {
		err := CheckExec(tc.command, make([]byte, tc.input))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{
		infoReply, osReply, netReply, freezeReply, `{"return":{"pid":1}}`, `{"return":1}`, `{"return":{"count":1}}`,
		`{"return":{"count":1,"buf-b64":"YQ==","eof":true}}`,
		`{"return":{"exited":true,"exitcode":1,"out-data":"b3V0","err-truncated":true}}`,
		`{"return":[{"user":"a","login-time":1}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		if info, err := AskInfo(func(string) (string, error) {
			return reply, nil
		}); err == nil && len(info.UserList) > maxUsers {
			t.Error("too many users")
		}
		if status, err := ParseExecStatus(reply); err == nil && len(status.Output) > len(reply) {
			t.Error("more output than reply")
		}
		_, _ = ParseExec(reply)
		_, _ = ParseFrozen(reply)
		_, _ = ParseOpenFile(reply)
		_, _ = ParseWriteFile(reply)
		if data, _, err := ParseReadFile(reply); err == nil && len(data) > ReadChunk {
			t.Error("more of a file than was asked for")
		}
		_ = TroubleOf(reply)
		r, err := Ask(func(string) (string, error) { return reply, nil })
		if err == nil && len(r.Interfaces) > maxInterfaces {
			t.Error("too many interfaces")
		}
	})
}
