package sshcmd

import (
	"reflect"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/action/ssh"
)

// The ProxyCommand is run by a shell, in which no word of the user's or the cluster's may be more than a word.
func TestProxyCommand(t *testing.T) {
	l := &login{Port: 2222, connection: []string{"--context", "it's $(reboot)"}}
	m := machine{Target: forward.Target{Namespace: "ns", Name: "demo", Instance: true}}
	got := l.proxyCommand("/opt/my tools/virt%ctl", m)
	want := `ProxyCommand='/opt/my tools/virt%%ctl' port-forward --stdio=true --context 'it'\''s $(reboot)' vmi/demo/ns 2222`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestLocalArgs(t *testing.T) {
	m := machine{Target: forward.Target{Namespace: "ns", Name: "demo"}}
	proxy := "ProxyCommand=virtctl port-forward --stdio=true vm/demo/ns 22"
	for name, c := range map[string]struct {
		l    login
		want []string
	}{
		"nothing said": {login{Checking: string(ssh.Ask)}, nil},
		"no known hosts": {
			login{Checking: string(ssh.Ask), knownHostsGiven: true},
			[]string{"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"},
		},
		"all": {
			login{
				Checking: "yes", knownHostsGiven: true, KnownHosts: "/hosts", Identities: []string{"a", "b"},
				LocalOpts: []string{"-o LogLevel=ERROR", "-vv"},
			},
			[]string{
				"-o", "UserKnownHostsFile=/hosts", "-o", "StrictHostKeyChecking=yes", "-i", "a", "-i", "b",
				"-o", "LogLevel=ERROR", "-vv",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.l.Port = 22
			want := append([]string{"-o", proxy}, c.want...)
			if got := c.l.localArgs("virtctl", m); !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
}
