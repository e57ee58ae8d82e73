//go:build e2e

package e2e

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/tests/frames"
)

// Where guests have tests/frames/raw, the frames to send, and what it has received.
const (
	rawProgram  = "/run/raw"
	rawFrames   = "/run/frames"
	rawReceived = "/run/received"
)

// carryRaw builds tests/frames/raw and copies it into guests.
func (c *cluster) carryRaw(t *testing.T, guests ...*guest) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "raw")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program,
		"./tests/frames/raw")
	cmd.Dir, cmd.Env = c.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tests/frames/raw: %v\n%s", err, out)
	}
	for _, g := range guests {
		g.in(t, "ip", "link", "set", "eth1", "up")
		c.virtctl(t, nil, "-n", g.ns, "cp", program, g.name+":"+rawProgram)
	}
}

// kindOf is the kind of a frame as the file of frames has it.
func kindOf(f frames.Frame) string {
	if f.Kind == "" {
		return "honest"
	}
	return string(f.Kind)
}

// carryFrames copies frames into the guest, for it to send those of a kind.
func (g *guest) carryFrames(t *testing.T, all []frames.Frame) {
	t.Helper()
	var text strings.Builder
	for _, f := range all {
		fmt.Fprintf(&text, "%s %x\n", kindOf(f), f.Data)
	}
	file := filepath.Join(t.TempDir(), "frames")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g.virtctl(t, nil, "-n", g.ns, "cp", file, g.name+":"+rawFrames)
}

// sends has the guest send the frames of a kind by a raw socket, once.
func (g *guest) sends(t *testing.T, kind string, want int) {
	t.Helper()
	out := g.virtctl(t, nil, "-n", g.ns, "exec", g.name, "--", rawProgram, "send", "eth1", rawFrames, kind)
	if strings.TrimSpace(out) != strconv.Itoa(want) {
		t.Fatalf("the guest has sent %q frames %s, want %d", out, kind, want)
	}
}

// receives has the guest write down what comes on eth1, until a frame has come.
func (g *guest) receives(t *testing.T, last []byte) {
	t.Helper()
	g.in(t, "sh", "-c", fmt.Sprintf("%s receive eth1 %x 900 >%s 2>&1 </dev/null &", rawProgram, last, rawReceived))
	eventually(t, time.Minute, g.name+" receives", func() string {
		if out := g.in(t, "head", "-n", "1", rawReceived); out != "ready" {
			return instead(out)
		}
		return ""
	})
}

// received are the frames that have come, in hex.
func (g *guest) received(t *testing.T) []string {
	t.Helper()
	return strings.Fields(g.in(t, "cat", rawReceived))
}

// came reports whether a frame has come. A driver may have filled it up with zeros.
func came(all []string, frame []byte) bool {
	bare := hex.EncodeToString(frames.Received(frame))
	return slices.ContainsFunc(all, func(got string) bool {
		more, begins := strings.CutPrefix(got, bare)
		return begins && strings.Trim(more, "0") == ""
	})
}

// withheld are honest frames that what is behind the guard keeps, by name, with the reason.
var withheld = map[string]string{
	"a fragment":             "connection tracking, in the pod and its node, waits for the other fragments",
	"MLD without an address": "bridges hand reports of multicast groups to routers alone",
}

// Of the frames that a guest sends by a raw socket each spoofed one is dropped and counted once, by its kind, whatever
// its own kernel and QEMU make of it, and each honest one reaches another guest.
func TestSpoofedFrames(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	var given []string
	for _, a := range frames.Addresses() {
		given = append(given, fmt.Sprintf(`{"address":"%s/%d"}`, a, map[bool]int{true: 24, false: 64}[a.Is4()]))
	}
	c.network(t, ns, "given", `{"cniVersion":"1.0.0","name":"given","type":"bridge","bridge":"lan2","ipam":{`+
		`"type":"static","addresses":[`+strings.Join(given, ",")+`]}}`)
	c.network(t, ns, "bare", `{"cniVersion":"1.0.0","name":"bare","type":"bridge","bridge":"lan2","ipam":{}}`)
	spoofer := c.create(t, newVM(ns, "spoofer", v1.RunStrategyAlways,
		withNetwork("given", "given", func(nic *v1.Interface) { nic.MacAddress = frames.MAC.String() }),
		withNetworkData(c.eth0(t))))
	victim := c.create(t, newVM(ns, "victim", v1.RunStrategyAlways, withNetwork("bare", "bare"),
		withNetworkData(c.eth0(t))))
	c.carryRaw(t, spoofer, victim)

	first := frames.Frame{Kind: "first", Data: frames.Honest(1)}
	last := frames.Frame{Kind: "last", Data: frames.Honest(2)}
	table := append(frames.Always(), frames.Bound()...)
	spoofer.carryFrames(t, append(slices.Clone(table), first, last))
	victim.receives(t, last.Data)
	eventually(t, bootTime, "the guests are on one network", func() string {
		spoofer.sends(t, "first", 1)
		if !came(victim.received(t), first.Data) {
			return "no frame came"
		}
		return ""
	})

	want := spoofer.counters(t, "given")
	if len(want) != len(network.Spoofs) {
		t.Fatalf("the counters are %v", want)
	}
	sent := map[string]int{}
	for _, f := range table {
		sent[kindOf(f)]++
	}
	counted := func(kind string) {
		t.Helper()
		eventually(t, time.Minute, "what is dropped of the frames "+kind+" is counted", func() string {
			if got := spoofer.counters(t, "given"); !maps.Equal(got, want) {
				return fmt.Sprintf("counters %v, want %v", got, want)
			}
			return ""
		})
	}
	for _, kind := range network.Spoofs {
		if sent[string(kind)] == 0 {
			t.Errorf("no frame is of kind %s", kind)
		}
		spoofer.sends(t, string(kind), sent[string(kind)])
		want[kind] += uint64(sent[string(kind)])
		counted(string(kind))
	}
	spoofer.sends(t, "honest", sent["honest"])
	spoofer.sends(t, "last", 1)
	var all []string
	eventually(t, time.Minute, "the last frame came", func() string {
		if all = victim.received(t); !came(all, last.Data) {
			return fmt.Sprintf("not among %d", len(all))
		}
		return ""
	})
	counted("honest")
	for _, f := range table {
		if withheld[f.Name] != "" {
			continue
		}
		if got := came(all, f.Data); got != (f.Kind == "") {
			t.Errorf("%s: it came: %v", f.Name, got)
		}
	}
	out := c.virtctl(t, nil, "-n", ns, "why", spoofer.name)
	if !strings.Contains(out, "on interface given as somebody else") {
		t.Errorf("why does not name what was dropped: %s", out)
	}
}
