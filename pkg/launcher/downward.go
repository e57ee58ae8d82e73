package launcher

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/vhostmd"
)

const (
	// metricsEvery is the interval at which the disk with metrics is written, as in KubeVirt.
	metricsEvery = 5 * time.Second
	// metricsPause is the least time between two answers at the port with metrics: the guest may ask as it likes.
	metricsPause = time.Second
	// metricsTimeout bounds the collecting.
	metricsTimeout = 5 * time.Second
)

// metricsReporter reports metrics of its node and of itself to the guest, when its spec asks for that: on a disk, at a
// port, or both. What it reports of the node is in /proc of any container.
type metricsReporter struct {
	guest *guest
	// node is the node's name; proc and sys are the mount points of those file systems.
	node, proc, sys string
	log             *slog.Logger
	// ways has the ways to the guest, once.
	ways chan ways
}

// ways are the disk that is written and the socket of the port; empty for none.
type ways struct{ disk, socket string }

func newMetricsReporter(o Options, g *guest) *metricsReporter {
	return &metricsReporter{guest: g, node: o.Node, proc: "/proc", sys: "/sys", log: o.Log, ways: make(chan ways, 1)}
}

// waysOf returns the ways that a VMI asks for.
func waysOf(vmi *v1.VirtualMachineInstance, o Options) ways {
	w := ways{disk: disk.MetricsImage(&vmi.Spec, o.Disks)}
	if vmi.Spec.Domain.Devices.DownwardMetrics != nil {
		w.socket = filepath.Join(o.RunDir, names.SocketMetrics)
	}
	return w
}

// set sets the ways. It may be called again, for the same guest.
func (t *metricsReporter) set(w ways) {
	if w == (ways{}) {
		return
	}
	select {
	case t.ways <- w:
	default:
	}
}

// run reports to the guest until ctx ends.
func (t *metricsReporter) run(ctx context.Context) {
	var w ways
	select {
	case w = <-t.ways:
	case <-ctx.Done():
		return
	}
	if !t.guest.awaitStart(ctx) {
		return
	}
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		t.serve(ctx, w.socket)
	}()
	t.write(ctx, w.disk)
	<-serving
}

// write keeps the disk current.
func (t *metricsReporter) write(ctx context.Context, name string) {
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.log.Warn("the guest gets no metrics on its disk", "err", err)
		return
	}
	defer f.Close()
	tick := time.NewTicker(metricsEvery)
	defer tick.Stop()
	for {
		report, err := t.report(ctx)
		if err == nil {
			err = vhostmd.Update(f, report)
		}
		if err != nil && ctx.Err() == nil {
			t.log.Debug("no metrics for the guest's disk", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// serve answers at the port. QEMU listens there; it hangs up when it ends.
func (t *metricsReporter) serve(ctx context.Context, socket string) {
	if socket == "" {
		return
	}
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err == nil {
			err = errors.Join(t.answer(ctx, conn), ignoreClosed(conn.Close()))
		}
		t.log.Debug("the port with metrics", "err", err)
		select {
		case <-time.After(metricsPause):
		case <-ctx.Done():
			return
		}
	}
}

// answer answers requests until the connection ends.
func (t *metricsReporter) answer(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	pause := time.NewTicker(metricsPause)
	defer pause.Stop()
	wait := func() error {
		select {
		case <-pause.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	in := bufio.NewReader(conn)
	for {
		if err := vhostmd.Answer(in, conn, wait, func() (vhostmd.Report, error) { return t.report(ctx) }); err != nil {
			return err
		}
	}
}

// report collects what there is to report.
func (t *metricsReporter) report(ctx context.Context) (vhostmd.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	conn, err := t.guest.connection(ctx)
	if err != nil {
		return vhostmd.Report{}, err
	}
	stats, err := conn.Stats(ctx)
	if err != nil {
		return vhostmd.Report{}, err
	}
	used := uint64(0)
	for _, vcpu := range stats.VCPUs {
		used += vcpu.Time
	}
	return vhostmd.NewReport(vhostmd.Host{
		Name: t.node, Product: stats.Version, Sockets: sockets(t.sys), PageSize: uint64(os.Getpagesize()),
		Now:  time.Now(),
		Stat: t.read("stat"), Meminfo: t.read("meminfo"), VMStat: t.read("vmstat"),
	}, vhostmd.Guest{
		CPUTime: time.Duration(min(used, 1<<62)), VCPUs: uint64(stats.Online()),
		Memory: stats.MemoryGuest,
	}), nil
}

// read returns the contents of a file of /proc; what cannot be read is left out.
func (t *metricsReporter) read(name string) string {
	text, err := os.ReadFile(filepath.Join(t.proc, name))
	if err != nil {
		t.log.Debug("left out of the guest's metrics", "err", err)
	}
	return string(text)
}

// sockets counts the node's physical processors; 0 when that is not known.
func sockets(sys string) int {
	files, err := filepath.Glob(filepath.Join(sys, "devices/system/cpu/cpu*/topology/physical_package_id"))
	if err != nil {
		return 0
	}
	seen := map[string]bool{}
	for _, name := range files {
		if id, err := os.ReadFile(name); err == nil {
			seen[string(id)] = true
		}
	}
	return len(seen)
}
