//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/top"
)

// sink is a service of the guest that takes what it is sent.
const sink = `#!/bin/sh
cat >/usr/bin/sink <<'END'
#!/bin/sh
exec cat >/dev/null
END
chmod +x /usr/bin/sink
nc -ll -p 7 -e /usr/bin/sink &
`

// loads write to the empty disk as fast as it goes, past the guest's cache.
const loads = `for d in /sys/block/vd*; do [ "$(cat $d/serial)" = EMPTY ] && E=/dev/${d##*/}; done; ` +
	`(while :; do dd if=/dev/zero of=$E bs=256k count=32 oflag=direct 2>/dev/null; done) & true`

// A disk's and an interface's limits come while the guest works, as virtctl says beforehand, and hold, also where the
// guest moves to; nothing is left of them when they are taken away.
func TestQoS(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "limited", v1.RunStrategyAlways, withEmptyDisk(), withUserData(sink)))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, loads)

	const limit = 2 << 20
	g.setQoS(t, "live", "--disk", "empty=write-bps=2Mi", "--interface", "default=in=256Ki")
	g.hasLimits(t, "write-bps=2Mi", "in=256Ki")
	written := func(r top.Row) int64 { return r.DiskWritten }
	g.keeps(t, written, limit)
	g.waitMigration(t, g.migrate(t, "away"), v1.MigrationSucceeded)
	g.keeps(t, written, limit)

	conn, err := net.Dial("tcp", g.forwarded(t, 7, "tcp"))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, zeros{}) // it ends when the test closes the connection
	}()
	g.keeps(t, func(r top.Row) int64 { return r.NetworkReceived }, 256<<10)
	conn.Close()
	<-sent

	g.setQoS(t, "live", "--none")
	g.hasLimits(t, "", "")
	eventually(t, bootTime, "the guest writes as it likes", func() string {
		if rate := written(g.top(t, time.Second)); rate < limit*3/2 {
			return fmt.Sprintf("%d bytes a second", rate)
		}
		return ""
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// setQoS changes limits, which takes effect as said.
func (g *guest) setQoS(t *testing.T, effect string, args ...string) {
	t.Helper()
	stdout, stderr, err := g.Virtctl(t.Context(), nil, append([]string{"-n", g.ns, "set", "qos", g.name}, args...)...)
	if err != nil || !strings.Contains(stdout, "\n  "+effect+" ") || strings.Contains(stdout, "restart") {
		t.Fatalf("set qos: %v\n%s%s", err, stdout, stderr)
	}
}

// hasLimits waits until the VMI has the limits, and its node has set them.
func (g *guest) hasLimits(t *testing.T, disk, nic string) {
	t.Helper()
	eventually(t, time.Minute, "the VMI has the limits", func() string {
		vmi := g.vmi(t)
		has := vmi.Annotations["disk.virtkit.io/empty"] == disk &&
			vmi.Annotations["interface.virtkit.io/default"] == nic
		for _, condition := range vmi.Status.Conditions {
			has = has && condition.Type != v1.VirtualMachineInstanceSynchronized
		}
		if !has {
			return fmt.Sprintf("%v %+v", vmi.Annotations, vmi.Status.Conditions)
		}
		return ""
	})
}

// top returns what the guest uses, measured over a time.
func (g *guest) top(t *testing.T, interval time.Duration) top.Row {
	t.Helper()
	stdout, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns, "top", g.name, "-o", "json",
		"--interval", interval.String())
	var report top.Report
	if err == nil {
		err = json.Unmarshal([]byte(stdout), &report)
	}
	if err != nil {
		t.Fatalf("top: %v\n%s%s", err, stdout, stderr)
	}
	if len(report.Items) != 1 {
		return top.Row{} // it did not answer in time, or was elsewhere before
	}
	return report.Items[0]
}

// keeps waits until the guest makes use of a limit, and checks that it keeps to it for some seconds. How near it comes
// depends on the machine; tests/bench measures it.
func (g *guest) keeps(t *testing.T, rate func(top.Row) int64, limit int64) {
	t.Helper()
	var got int64
	eventually(t, bootTime, "the guest makes use of its limit, and no more", func() string {
		if got = rate(g.top(t, 4*time.Second)); got < limit/4 || got > limit*5/4 {
			return fmt.Sprintf("%d bytes a second, of %d", got, limit)
		}
		return ""
	})
	row := g.top(t, 4*time.Second)
	if got = rate(row); got > limit*5/4 {
		t.Errorf("%d bytes a second, with a limit of %d", got, limit)
	}
	if row.Name != "" && len(row.Limits) == 0 {
		t.Error("top knows of no limits")
	}
}
