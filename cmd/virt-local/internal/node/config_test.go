package node

import (
	"bytes"
	"cmp"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

var update = flag.Bool("update", false, "write the golden files")

// The files of IPv4 and of Multus are those of nodes with one family; dual/ and ipv6/ have those that differ.
func TestFiles(t *testing.T) {
	in := &instance.Instance{Name: "test", StateDir: "/state", Slot: 3, Nodes: 2, Created: time.Unix(0, 0)}
	files, err := Files(in.NodeList()[1], Tools{Runc: "/usr/sbin/runc", CNI: "/usr/lib/cni"}, "/state/pki",
		[]byte("nameserver 192.0.2.1\n"))
	if err != nil {
		t.Fatal(err)
	}
	in.Multus = true
	withMultus, err := Files(in.NodeList()[1], Tools{Runc: "/usr/sbin/runc", CNI: "/usr/lib/cni"}, "/state/pki", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"net.d/10-virt-local.conflist", "containerd.toml"} {
		files["multus/"+name] = withMultus[name]
	}
	in.Multus = false
	for _, family := range []string{instance.Dual, instance.IPv6} {
		in.IPFamily = family
		with, err := Files(in.NodeList()[1], Tools{Runc: "/usr/sbin/runc", CNI: "/usr/lib/cni"}, "/state/pki",
			[]byte("nameserver 192.0.2.1\n"))
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range with {
			if !bytes.Equal(content, files[name]) {
				files[family+"/"+name] = content
			}
		}
	}
	for name, got := range files {
		golden := filepath.Join("testdata", strings.ReplaceAll(name, "/", "_"))
		if *update {
			if err := instance.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got; go test -update writes it):\n%s", name, diff)
		}
	}
}

func TestResolvConf(t *testing.T) {
	tests := []struct {
		name, in, want string
		dns            string
	}{
		{
			name: "plain", in: "# by hand\nnameserver 192.0.2.1\nsearch example.org\n",
			want: "nameserver 192.0.2.1\nsearch example.org\n",
		},
		{
			name: "systemd-resolved", in: "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n",
			want: "options edns0 trust-ad\nsearch lan\nnameserver 10.192.0.10\n",
		},
		{
			name: "IPv6, which nodes have not", in: "nameserver fd00::1\nnameserver 192.0.2.1\n",
			want: "nameserver 192.0.2.1\n",
		},
		{name: "none", want: "nameserver 10.192.0.10\n"},
		{
			name: "both", dns: "10.192.0.10 fd76::10", in: "nameserver fd00::1\nnameserver 192.0.2.1\n",
			want: "nameserver fd00::1\nnameserver 192.0.2.1\n",
		},
		{
			name: "the machine's own and the link's", dns: "10.192.0.10 fd76::10",
			in:   "nameserver ::1\nnameserver fe80::1%eth0\nnameserver 127.0.0.1\nnameserver x\n",
			want: "nameserver 10.192.0.10\nnameserver fd76::10\n",
		},
		{
			name: "IPv4, which nodes have not", dns: "fd76::10", in: "nameserver 192.0.2.1\nsearch lan\n",
			want: "search lan\nnameserver fd76::10\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var dns []netip.Addr
			for text := range strings.FieldsSeq(cmp.Or(test.dns, "10.192.0.10")) {
				dns = append(dns, netip.MustParseAddr(text))
			}
			if diff := gocmp.Diff(test.want, string(ResolvConf([]byte(test.in), dns))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
