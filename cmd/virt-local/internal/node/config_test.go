package node

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

var update = flag.Bool("update", false, "write the golden files")

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
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got; go test -update writes it):\n%s", name, diff)
		}
	}
}

func TestResolvConf(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{
			"plain", "# by hand\nnameserver 192.0.2.1\nsearch example.org\n",
			"nameserver 192.0.2.1\nsearch example.org\n",
		},
		{
			"systemd-resolved", "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n",
			"options edns0 trust-ad\nsearch lan\nnameserver 10.192.0.10\n",
		},
		{"IPv6, which nodes have not", "nameserver fd00::1\nnameserver 192.0.2.1\n", "nameserver 192.0.2.1\n"},
		{"none", "", "nameserver 10.192.0.10\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, string(ResolvConf([]byte(test.in), "10.192.0.10"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
