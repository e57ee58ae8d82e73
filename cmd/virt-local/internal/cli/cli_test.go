package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
	"github.com/virtkit/virtkit/pkg/waits"
)

func TestDecide(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := upOptions{which: &which{name: "test"}, nodes: 2, kubeconfig: "/k", family: auto, ipv6: able}
	in, fresh, err := decide(o, dir, now)
	if err != nil || !fresh || in.IPFamily != instance.Dual || in.Nodes != 2 || in.Kubeconfig != "/k" ||
		in.StateDir != dir {
		t.Fatalf("fresh: %+v, %v, %v", in, fresh, err)
	}
	if err := in.Save(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		change  func(*upOptions)
		nodes   int
		problem string
	}{
		{"again", func(*upOptions) {}, 2, ""},
		{"the default number changes nothing", func(o *upOptions) { o.nodes = 1 }, 2, ""},
		{"grow", func(o *upOptions) { o.nodes, o.nodesGiven = 3, true }, 3, ""},
		{
			"shrink", func(o *upOptions) { o.nodes, o.nodesGiven = 1, true }, 0,
			"cannot shrink: virt-local down --name test",
		},
		{"the family as it is", func(o *upOptions) { o.family = instance.Dual }, 2, ""},
		{
			"another family", func(o *upOptions) { o.family = instance.IPv4 }, 0,
			"has --ip-family dual, and a cluster's addresses cannot change: virt-local down --name test first",
		},
		{
			"another's directory", func(o *upOptions) { o.which = &which{name: "other"} }, 0,
			`belongs to the instance "test"`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := o
			o.kubeconfig = ""
			test.change(&o)
			in, fresh, err := decide(o, dir, now)
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("got %v, want %q", err, test.problem)
				}
				return
			}
			if err != nil || fresh || in.Nodes != test.nodes || in.Kubeconfig != "/k" {
				t.Errorf("%+v, %v, %v", in, fresh, err)
			}
		})
	}
}

// On a slow machine nodes are waited for longer, unless a flag says for how long.
func TestPatienceWithNodes(t *testing.T) {
	for factor, want := range map[string]time.Duration{"": 0, "1": 0, "10": 500 * time.Second} {
		t.Setenv(waits.Variable, factor)
		o := upOptions{which: &which{name: "test"}, nodes: 2, kubeconfig: "/k", ipv6: able}
		in, _, err := decide(o, t.TempDir(), time.Now())
		if err != nil || in.NodeMonitorGrace != want {
			t.Errorf("%s=%s: a silent node stays Ready for %v, %v; want %v", waits.Variable, factor,
				in.NodeMonitorGrace, err, want)
		}
		o.grace = time.Minute
		if in, _, err = decide(o, t.TempDir(), time.Now()); err != nil || in.NodeMonitorGrace != time.Minute {
			t.Errorf("%s=%s: the flag does not win: %v, %v", waits.Variable, factor, in.NodeMonitorGrace, err)
		}
	}
}

// able is a machine that can have IPv6.
func able() error { return nil }

// An instance has the addresses that the machine can have unless it is asked for others, and keeps what it has.
func TestChooseFamily(t *testing.T) {
	unable := func() error { return errors.New("its kernel has no IPv6") }
	for _, c := range []struct {
		name, has, flag string
		fresh           bool
		ipv6            func() error
		want, problem   string
	}{
		{"new", "", "", true, able, instance.Dual, ""},
		{"new, without IPv6", "", "", true, unable, instance.IPv4, ""},
		{"new, of what the machine can", "", "auto", true, able, instance.Dual, ""},
		{"new, of what the machine can, without IPv6", "", "auto", true, unable, instance.IPv4, ""},
		{"new, of both", "", "dual", true, able, instance.Dual, ""},
		{"new, of one family", "", "ipv4", true, able, instance.IPv4, ""},
		{"new, which asks for no more than it needs", "", "ipv4", true, nil, instance.IPv4, ""},
		{"new, of the other family", "", "ipv6", true, able, instance.IPv6, ""},
		{
			"new, by name, on a machine without", "", "dual", true, unable, "",
			"this machine cannot have --ip-family dual: its kernel has no IPv6; without the flag the cluster has IPv4",
		},
		{"new, unknown", "", "both", true, able, "", `invalid --ip-family "both": ipv4, ipv6, dual, auto are possible`},
		{"again", "dual", "", false, unable, instance.Dual, ""},
		{"again, by name", "dual", "dual", false, unable, instance.Dual, ""},
		{"again, whatever it is", "ipv6", "auto", false, unable, instance.IPv6, ""},
		{"from before", "", "", false, able, "", ""},
		{"from before, by name", "", "ipv4", false, able, "", ""},
		{
			"from before, changed", "", "dual", false, able, "",
			"has --ip-family ipv4, and a cluster's addresses cannot change: virt-local down --name test first",
		},
		{"changed", "dual", "ipv6", false, able, "", "has --ip-family dual"},
		{"unknown", "dual", "x", false, able, "", `invalid --ip-family "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &instance.Instance{Name: "test", IPFamily: c.has}
			err := chooseFamily(upOptions{which: &which{name: "test"}, family: c.flag, ipv6: c.ipv6}, in, c.fresh)
			if c.problem == "" && (err != nil || in.IPFamily != c.want) {
				t.Errorf("%q, %v; want %q", in.IPFamily, err, c.want)
			}
			if c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("%v; want %q", err, c.problem)
			}
		})
	}
}

// Where volumes come from is decided once, but for an instance that is older than the choice, or one that is taken over
// while it is down.
func TestChooseStorage(t *testing.T) {
	for _, c := range []struct {
		name, has, flag string
		fresh, runs     bool
		want, problem   string
	}{
		{"new", "", "", true, false, "csi", ""},
		{"new, as before", "", "hostpath", true, false, "hostpath", ""},
		{"new, by name", "", "csi", true, false, "csi", ""},
		{"new, unknown", "", "nfs", true, false, "", `invalid --storage "nfs": csi and hostpath are possible`},
		{"again", "csi", "", false, true, "csi", ""},
		{"again, by name", "csi", "csi", false, true, "csi", ""},
		{"back", "csi", "hostpath", false, false, "", "there is no way back: virt-local down --name test first"},
		{"from before, down", "", "", false, false, "csi", ""},
		{"from before, up", "", "", false, true, "", ""},
		{"from before, kept", "", "hostpath", false, false, "hostpath", ""},
		{"chosen before, down", "hostpath", "", false, false, "hostpath", ""},
		{"taken over", "hostpath", "csi", false, false, "csi", ""},
		{
			"taken over while it runs", "hostpath", "csi", false, true, "",
			"virt-local down --keep-data --name test first",
		},
		{
			"from before, taken over while it runs", "", "csi", false, true, "",
			"virt-local down --keep-data --name test first",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &instance.Instance{Name: "test", StateDir: t.TempDir(), Storage: c.has}
			if c.runs {
				id, err := process.Identify(os.Getpid())
				if err != nil {
					t.Fatal(err)
				}
				if err := id.WriteFile(cluster.ControlPlanePIDFile(in)); err != nil {
					t.Fatal(err)
				}
			}
			err := chooseStorage(upOptions{which: &which{name: "test"}, storage: c.flag}, in, c.fresh)
			if c.problem == "" && (err != nil || in.Storage != c.want) {
				t.Errorf("%q, %v; want %q", in.Storage, err, c.want)
			}
			if c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("%v; want %q", err, c.problem)
			}
		})
	}
}

func TestStatusOutput(t *testing.T) {
	s := cluster.Status{
		Name: "test", StateDir: "/state", Server: "https://10.99.0.1:6443", Kubeconfig: "/k",
		AuditLog: "/state/audit.log", StorageLimits: "copies only",
		Components: []cluster.ProcessStatus{
			{Name: "control-plane", Running: true, PID: 10, AgeSeconds: 90, MemoryBytes: 350 << 20, Log: "/l"},
			{Name: "kubelet", Node: "node1", Log: "/l2"},
		},
		Nodes: []cluster.NodeStatus{
			{Name: "node1", IP: "10.99.0.11", PodNet: "10.128.1.0/24", Message: "it is not Ready: x"},
			{
				Name: "node2", IP: "10.99.0.12", PodNet: "10.128.2.0/24", Ready: true,
				IPs:     []string{"10.99.0.12", "fd76:6c6f:6300::12"},
				PodNets: []string{"10.128.2.0/24", "fd76:6c6f:6300:102::/64"},
			},
		},
		Kept: []provision.Data{
			{
				Volume: "pvc-1", Path: "/state/volumes/pvc-1", Bytes: 5<<20 + 1,
				Remove: "sudo virt-local volume remove pvc-1",
			},
		},
	}
	var out bytes.Buffer
	if err := printStatus(&out, s); err != nil {
		t.Fatal(err)
	}
	want := `Instance   test
Server     https://10.99.0.1:6443
State      /state
Storage    copies only

NODE    READY   IP                              PODS                                    MESSAGE
node1   false   10.99.0.11                      10.128.1.0/24                           it is not Ready: x
node2   true    10.99.0.12,fd76:6c6f:6300::12   10.128.2.0/24,fd76:6c6f:6300:102::/64   

COMPONENT       NODE    PID   AGE   MEMORY
control-plane           10    90s   350 MiB
kubelet         node1   -     -     not running; see /l2

KEPT DATA              SIZE    REMOVE IT WITH
/state/volumes/pvc-1   6 MiB   sudo virt-local volume remove pvc-1
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	// The keys of the JSON form are a contract.
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON :=
		`{"name":"test","stateDir":"/state","server":"https://10.99.0.1:6443","kubeconfig":"/k","auditLog":"/state/audit.log","ready":false,` +
			`"components":[{"name":"control-plane","running":true,"pid":10,"ageSeconds":90,"memoryBytes":367001600,"log":"/l"},{"name":"kubelet","node":"node1","running":false,"log":"/l2"}],` +
			`"nodes":[{"name":"node1","ip":"10.99.0.11","podNetwork":"10.128.1.0/24","ready":false,"message":"it is not Ready: x"},` +
			`{"name":"node2","ip":"10.99.0.12","podNetwork":"10.128.2.0/24","ips":["10.99.0.12","fd76:6c6f:6300::12"],` +
			`"podNetworks":["10.128.2.0/24","fd76:6c6f:6300:102::/64"],"ready":true}],"storageLimits":"copies only","kept":[{"volume":"pvc-1","path":"/state/volumes/pvc-1","bytes":5242881,"remove":"sudo virt-local volume remove pvc-1"}]}`
	if diff := cmp.Diff(wantJSON, string(b)); diff != "" {
		t.Error(diff)
	}
}

// `up` says what volumes cannot do, and nothing where they can do everything.
func TestUpSaysWhatVolumesCannotDo(t *testing.T) {
	var out bytes.Buffer
	in := &instance.Instance{StateDir: t.TempDir(), Storage: instance.CSI}
	if printLimits(&out, in); out.Len() > 0 {
		t.Error(out.String())
	}
	var on unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &on); err != nil || on.Type != unix.TMPFS_MAGIC {
		t.Skip("there is no tmpfs at /dev/shm, which has no reflinks")
	}
	t.Setenv("TMPDIR", "/dev/shm")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "csi", "pool", "volumes"), 0o700); err != nil {
		t.Fatal(err)
	}
	in.StateDir = dir
	printLimits(&out, in)
	if !strings.HasPrefix(out.String(), "Its volumes are on a file system without reflinks: snapshots and clones are "+
		"copies") {
		t.Error(out.String())
	}
}

func TestShowLogs(t *testing.T) {
	dir := t.TempDir()
	log := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := strings.Repeat("0123456789abcdef\n", 10000)
	logs := []cluster.ProcessStatus{
		{Name: "control-plane", Log: log("a", "a1\na2\na3")},
		{Name: "kubelet", Node: "node1", Log: log("b", long+"b1\nb2\n")},
		{Name: "init", Node: "node1", Log: filepath.Join(dir, "none")},
	}
	for _, test := range []struct {
		tail int
		want string
	}{
		{2, "[control-plane] a2\n[control-plane] a3\n[node1/kubelet] b1\n[node1/kubelet] b2\n"},
		{0, ""},
	} {
		var out bytes.Buffer
		if err := showLogs(context.Background(), &out, logs, logsOptions{tail: test.tail}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("tail %d: %s", test.tail, diff)
		}
	}
	var out bytes.Buffer
	if err := showLogs(context.Background(), &out, logs[1:2], logsOptions{tail: 9000}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 9000 {
		t.Errorf("tail 9000 gives %d lines", n)
	}
}

// watcher is a writer that says when a text has arrived.
type watcher struct {
	bytes.Buffer
	text string
	seen chan struct{}
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) && w.seen != nil {
		close(w.seen)
		w.seen = nil
	}
	return n, err
}

func TestFollowLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("old\nhalf a "), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(chan struct{})
	out := &watcher{text: "half a line\n", seen: seen}
	done := make(chan error, 1)
	go func() {
		done <- showLogs(ctx, out, []cluster.ProcessStatus{{Name: "x", Log: path}}, logsOptions{follow: true, tail: -1})
	}()
	if _, err := f.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatal("the added line does not come")
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != "old\nhalf a line\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestProgressWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, stop: make(chan struct{})}
	p.report("network", false, 0)
	p.report("network", true, 20*time.Millisecond)
	p.report("", false, 0)
	p.report("node1", false, 0)
	p.close()
	if out.String() != "network ready (0.0 s)\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestRemoveRemains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := removeRemains(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	if err := instance.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeRemains(dir); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("somebody's directory was removed: %v", err)
	}
}

func TestFindNodes(t *testing.T) {
	in := &instance.Instance{Name: "test", Nodes: 2}
	if found, err := findNodes(in, []string{"node2", "node1"}); err != nil || len(found) != 2 || found[0].Number != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := findNodes(in, []string{"node1", "node3"}); err == nil ||
		!strings.Contains(err.Error(), "there are node1, node2") {
		t.Errorf("a node that is not there: %v", err)
	}
}

// A context that was merged into several kubeconfigs goes from all of them.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	in := &instance.Instance{Name: "tour"}
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	for _, path := range []string{first, second, second, first, second} {
		in.ChooseKubeconfig(path)
		err := kubeconfig.Update(path, func(cfg *api.Config) {
			kubeconfig.Merge(cfg, "other", kubeconfig.Credentials{Server: "https://other"})
			kubeconfig.Merge(cfg, in.Name, kubeconfig.Credentials{Server: "https://tour"})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if in.Kubeconfig != second || !slices.Equal(in.Kubeconfigs, []string{first}) {
		t.Fatalf("%s, and %v", in.Kubeconfig, in.Kubeconfigs)
	}
	if err := forget(in); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{first, second} {
		cfg, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(cfg.Contexts) != 1 || len(cfg.Clusters) != 1 || len(cfg.AuthInfos) != 1 || cfg.Contexts["other"] == nil {
			t.Errorf("%s has %v", path, cfg.Contexts)
		}
	}
}
