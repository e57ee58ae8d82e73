//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// throttled returns the limits that QEMU has for a guest's disk, as libvirt reports them, without those that are 0.
func throttled(t *testing.T, p *pod, domain, target string) string {
	t.Helper()
	out, err := p.run(imageEnvironment(t), "virsh", "blkdeviotune", domain, target)
	if err != nil {
		t.Fatalf("virsh blkdeviotune %s: %v\n%s", target, err, out)
	}
	var limits []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if strings.HasSuffix(name, "_sec") && name != "size_iops_sec" && value != "0" {
			limits = append(limits, name+"="+value)
		}
	}
	return strings.Join(limits, " ")
}

// setLimits gives the guest's first disk these limits while it runs.
func setLimits(t *testing.T, p *pod, text string) {
	t.Helper()
	vmi := p.vmi.DeepCopy()
	vmi.Annotations = map[string]string{}
	if text != "" {
		vmi.Annotations["disk.virtkit.io/disk0"] = text
	}
	data, err := json.Marshal(vmi)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.SetDiskLimits(t.Context(), &pb.SetDiskLimitsRequest{VmiJson: data}); err != nil {
		t.Fatalf("limits %q: %v", text, err)
	}
}

// A disk has its limits from the start; they change, of either kind, and go while the guest runs.
func TestDiskLimits(t *testing.T) {
	vmi := tinyVMI("limits")
	vmi.Annotations = map[string]string{"disk.virtkit.io/disk0": "iops=900,read-bps=40Mi,write-bps=20Mi"}
	p := newPod(t, vmi)
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	const atStart = "read_bytes_sec=41943040 write_bytes_sec=20971520 total_iops_sec=900"
	if got := throttled(t, p, "default_limits", "vda"); got != atStart {
		t.Errorf("at the start: %s", got)
	}
	if got := throttled(t, p, "default_limits", "vdb"); got != "" {
		t.Errorf("the other disk: %s", got)
	}
	for _, step := range []struct{ text, want string }{
		{"bps=50Mi", "total_bytes_sec=52428800"},
		{"read-iops=7,write-iops=8", "read_iops_sec=7 write_iops_sec=8"},
		{"", ""},
		{"iops=900,read-bps=40Mi,write-bps=20Mi", atStart},
	} {
		for range 2 {
			setLimits(t, p, step.text)
			if got := throttled(t, p, "default_limits", "vda"); got != step.want {
				t.Errorf("%q: %s, want %s", step.text, got, step.want)
			}
		}
	}
}

// QEMU holds a limit that comes while the guest reads and writes as fast as it can: over ten seconds it moves no more
// than the limit says, and one tenth of a second's worth at once.
func TestDiskLimitHolds(t *testing.T) {
	skipInShort(t)
	p := newPod(t, tinyVMI("holds"))
	p.mustStart()
	m := &moving{t: t}
	p.eventually(bootTime, "the guest agent", func() bool {
		_, err := m.run(p, "true")
		return err == nil
	})
	const load = `(while :; do dd if=/dev/vda of=/dev/null bs=256k iflag=direct; done) >/dev/null 2>&1 </dev/null &`
	if _, err := m.run(p, load); err != nil {
		t.Fatal(err)
	}
	read := func() (uint64, time.Time) {
		stats, err := p.client.Stats(t.Context(), &pb.StatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range stats.Disks {
			if d.Name == "vda" {
				return d.Read, time.Now()
			}
		}
		t.Fatalf("no disk vda: %v", stats.Disks)
		return 0, time.Time{}
	}
	rate := func(least time.Duration) float64 {
		before, began := read()
		var after uint64
		var at time.Time
		p.eventually(least+time.Minute, "the time is over", func() bool {
			after, at = read()
			return at.Sub(began) >= least
		})
		return float64(after-before) / at.Sub(began).Seconds()
	}
	free := rate(3 * time.Second)
	const limit = 2 << 20
	if free < 2*limit {
		t.Fatalf("the guest reads %.0f bytes a second without a limit, too little for the test", free)
	}
	setLimits(t, p, fmt.Sprintf("read-bps=%d", limit))
	if got := rate(10 * time.Second); got > limit*1.1 || got < limit*0.5 {
		t.Errorf("%.0f bytes a second, with a limit of %d (%.0f without)", got, limit, free)
	} else {
		t.Logf("%.3f of the limit, %.1f times as much without", got/limit, free/limit)
	}
}

// A limit moves with the guest, and can be changed where it is then.
func TestDiskLimitsMove(t *testing.T) {
	skipInShort(t)
	m := newMoving(t, func(vmi *v1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{"disk.virtkit.io/disk0": "bps=50Mi"}
	})
	m.wordRun()
	m.let <- struct{}{}
	if code, message := m.source.waitExit(20 * time.Second); code != 0 {
		t.Fatalf("exit code %d, message %s", code, message)
	}
	m.count(m.target)
	if got := throttled(t, m.target, "default_mover", "vda"); got != "total_bytes_sec=52428800" {
		t.Errorf("at the target: %s", got)
	}
	setLimits(t, m.target, "write-iops=8")
	if got := throttled(t, m.target, "default_mover", "vda"); got != "write_iops_sec=8" {
		t.Errorf("changed at the target: %s", got)
	}
}
