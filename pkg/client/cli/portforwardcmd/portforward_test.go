package portforwardcmd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func factory(out *bytes.Buffer) *cli.Factory {
	streams := cli.NoStreams()
	streams.Out, streams.ErrOut = out, out
	return cli.NewFactory("virtctl", streams, func(string) string { return "" })
}

// parsed runs the command's parser over a command line.
func parsed(t *testing.T, line ...string) (*Options, error) {
	t.Helper()
	o := &Options{Factory: factory(&bytes.Buffer{}), Output: cli.NewOutput()}
	cmd := &cobra.Command{Use: "port-forward"}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Addresses, "address", []string{defaultAddress}, "")
	flags.BoolVar(&o.Stdio, "stdio", false, "")
	flags.BoolVar(&o.Background, "background", false, "")
	flags.StringVar(&o.Socks, "socks", "", "")
	flags.Lookup("socks").NoOptDefVal = defaultSocksPort
	o.Output.AddFlags(cmd)
	if err := cmd.ParseFlags(line); err != nil {
		t.Fatal(err)
	}
	return o, o.parse(cmd, flags.Args())
}

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"demo 8080:80":                  `demo [{tcp 8080 80}] ""`,
		"vmi/demo/prod :22 udp/5353:53": `vmi/demo/prod [{tcp 0 22} {udp 5353 53}] ""`,
		"demo 22 --stdio":               `demo [{tcp 22 22}] ""`,
		"demo :22 --stdio":              `demo [{tcp 22 22}] ""`,
		"--socks":                       ` [] "127.0.0.1:1080"`,
		"--socks=0":                     ` [] "127.0.0.1:0"`,
		"--socks=[::1]:1080":            ` [] "[::1]:1080"`,
		"--socks --address ::1":         ` [] "[::1]:1080"`,
		"demo 80 --socks=localhost:9 --address ::1": `demo [{tcp 80 80}] "localhost:9"`,
	} {
		o, err := parsed(t, strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got := fmt.Sprintf("%s %v %q", o.Name, o.Ports, o.Socks); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// What is wrong on a command line is named, with a command line that is right.
func TestParseRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "needs the name of one VM and a port, as in `port-forward demo 8080:80`",
		"demo":                          "needs a port too, as in `port-forward demo 8080:80`",
		"--socks 127.0.0.1:1080":        "give the address with =, as in --socks=127.0.0.1:1080",
		"demo 80 81 --stdio":            "--stdio is one connection to one port, got 2",
		"demo 80 --stdio --background":  "--stdio goes with none of --socks, --background and -o",
		"demo 80 --stdio -o json":       "--stdio goes with none of --socks, --background and -o",
		"demo 0:0":                      "the guest has no port 0",
		"demo sctp/80":                  "the protocol is tcp or udp",
		"demo 80 --address example.com": `--address "example.com" is neither an IP address nor localhost`,
		"--socks=example.com:1080":      `--socks "example.com:1080" is not ADDRESS:PORT`,
		"--socks=127.0.0.1:ssh":         `--socks "127.0.0.1:ssh" is not ADDRESS:PORT`,
		"pod/demo 80":                   "pod/demo",
	} {
		if o, err := parsed(t, strings.Fields(line)...); cli.ExitCode(err) != cli.ExitUsage ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", line, o, err, want)
		}
	}
}

func TestSentence(t *testing.T) {
	refused := errors.New("the guest\nrefused the connection")
	for want, event := range map[string]forward.Event{
		"handling tcp connection from 127.0.0.1:5 for port 22": {Kind: forward.Opened},
		"tcp connection from 127.0.0.1:5 for port 22 waits: the guest refused the connection": {
			Kind: forward.Waiting, Err: refused,
		},
		"tcp connection from 127.0.0.1:5 for port 22 failed: the guest refused the connection": {
			Kind: forward.Failed, Err: refused,
		},
		"tcp connection from 127.0.0.1:5 for port 22 was lost: the guest refused the connection": {
			Kind: forward.Closed, Err: refused,
		},
		"": {Kind: forward.Closed},
	} {
		event.Protocol, event.Client, event.Port = forward.TCP, "127.0.0.1:5", 22
		if got := sentence(event, cli.Connection{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Away from a terminal only what goes wrong is printed; the connections are counted either way.
func TestNotify(t *testing.T) {
	var out bytes.Buffer
	s := &session{o: &Options{Factory: factory(&out)}}
	s.notify(forward.Event{Kind: forward.Opened, Protocol: forward.TCP, Client: "a", Port: 22})
	s.notify(forward.Event{Kind: forward.Opened, Protocol: forward.TCP, Client: "b", Port: 22})
	s.notify(forward.Event{Kind: forward.Closed, Protocol: forward.TCP, Client: "a", Port: 22})
	if s.open.Load() != 1 || out.Len() > 0 {
		t.Errorf("%d open, printed %q", s.open.Load(), &out)
	}
	lost := errors.New("reset")
	s.notify(forward.Event{Kind: forward.Closed, Protocol: forward.TCP, Client: "b", Port: 22, Err: lost})
	if want := "tcp connection from b for port 22 was lost: reset\n"; s.open.Load() != 0 || out.String() != want {
		t.Errorf("%d open, printed %q", s.open.Load(), &out)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	f := factory(&out)
	start := time.Unix(1_700_000_000, 0)
	f.Now = func() time.Time { return start.Add(90 * time.Second) }
	web := forward.NewSession("k3f9a", "default", "vm/web", nil, nil)
	web.Context, web.Connections, web.CreationTimestamp = "prod", 2, metav1.NewTime(start)
	web.Ports = []forward.SessionPort{{Protocol: forward.UDP, Address: "127.0.0.1:53", TargetPort: 5353}}
	socks := forward.NewSession("x", "shop", "", nil, []string{"[::1]:1080"})
	socks.CreationTimestamp = metav1.NewTime(start)
	if err := table(f, []*forward.Session{web, socks}, false); err != nil {
		t.Fatal(err)
	}
	const want = "" +
		"ID      NAMESPACE   TARGET   PORTS                    CONNECTIONS   CONTEXT   AGE\n" +
		"k3f9a   default     vm/web   127.0.0.1:53->5353/udp   2             prod      90s\n" +
		"x       shop        <none>   [::1]:1080->socks5       0             <none>    90s\n"
	if out.String() != want {
		t.Errorf("\n%s, want\n%s", &out, want)
	}
	out.Reset()
	if err := table(f, nil, false); err != nil || out.String() != "No sessions found.\n" || f.IO.ErrIsTTY {
		t.Errorf("no session: %q, %v", &out, err)
	}
}

// A guest's declared ports are completed, and what guests often serve where it declares none.
func TestComplete(t *testing.T) {
	api := clienttest.New(t)
	const vmis = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
	web := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	web.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Ports: []v1.Port{{Name: "http", Port: 80}, {Protocol: "UDP", Port: 53}, {Name: "alt", Port: 8080}},
	}}
	plain := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	api.Put(vmis, v1.VirtualMachineInstanceList{Items: []v1.VirtualMachineInstance{web, plain}})
	api.Put(vmis+"/web", web)
	api.Put(vmis+"/plain", plain)
	f := factory(&bytes.Buffer{})
	f.Flags.Kubeconfig = api.Kubeconfig("default")
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	for _, test := range []struct {
		args []string
		word string
		want []string
	}{
		{nil, "w", []string{"web"}},
		{nil, "vmi/", []string{"vmi/web", "vmi/plain"}},
		{[]string{"web"}, "", []string{":80\thttp", "udp/:53", ":8080\talt"}},
		{[]string{"web"}, ":8", []string{":80\thttp", ":8080\talt"}},
		{[]string{"plain"}, "8", []string{"8080:80\thttp", "8443:443\thttps"}},
		{[]string{"gone"}, ":2", []string{":22\tssh"}},
	} {
		got, directive := complete(f)(cmd, test.args, test.word)
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], "\t") // no phase
		}
		if !slices.Equal(got, test.want) || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%q %q: %q, directive %d; want %q", test.args, test.word, got, directive, test.want)
		}
	}
}
