package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// allWrites counts the writing requests that the API server has answered, by anyone; leases are left out, since
// kubelets renew them whatever runs.
func (b *bench) allWrites(ctx context.Context) (float64, error) {
	text, err := b.Kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range metric.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		switch labels["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			// Asking who may do what is no write.
			if labels["resource"] != "leases" && !strings.HasSuffix(labels["resource"], "reviews") {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total, nil
}

// ownWrites counts the writes of virtkit's components in the instance's audit log, leases included.
func (b *bench) ownWrites() (int, error) {
	file, err := os.Open(filepath.Join("/var/lib/virt-local", b.Name, "audit.log"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Stage, Verb string
			ObjectRef   struct{ Resource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		if event.Stage != "ResponseComplete" || strings.HasSuffix(event.ObjectRef.Resource, "reviews") {
			continue
		}
		switch event.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			n++
		}
	}
	return n, lines.Err()
}

func install(ctx context.Context, b *bench) ([]Row, error) {
	before, err := b.allWrites(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := b.Install(ctx); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := b.allWrites(ctx)
	if err != nil {
		return nil, err
	}
	return []Row{
		Row{Name: "install", What: "install → Available, images present", Unit: "s", Value: took.Seconds()}.limit(15),
		Row{Name: "install-writes", What: "API writes of an installation, by all", Unit: "writes", Value: after - before}.limit(120),
	}, nil
}

func idle(ctx context.Context, b *bench) ([]Row, error) {
	const window = 30 * time.Second
	if err := pause(ctx, 10*time.Second); err != nil { // let the installation settle
		return nil, err
	}
	before, err := b.ownWrites()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, window); err != nil {
		return nil, err
	}
	after, err := b.ownWrites()
	if err != nil {
		return nil, err
	}
	rss, err := b.componentsRSS(ctx)
	if err != nil {
		return nil, err
	}
	return []Row{
		Row{Name: "idle-writes", What: "API writes a second, idle, no VM", Unit: "/s", Value: float64(after-before) / window.Seconds()}.limit(.5),
		Row{Name: "idle-rss", What: "all components' RSS, idle, two nodes", Unit: "MiB", Value: mebibytes(rss)}.limit(320),
	}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func (b *bench) componentsRSS(ctx context.Context) (int64, error) {
	pods, err := b.Kube.CoreV1().Pods(names.Namespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent})
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, pod := range pods.Items {
		processes, err := instance.Processes(string(pod.UID))
		if err != nil {
			return 0, err
		}
		for _, p := range processes {
			if p.Command != "virt-server" {
				continue
			}
			rss, err := p.Memory("Rss")
			if err != nil {
				return 0, err
			}
			total += rss
		}
	}
	if total == 0 {
		return 0, errors.New("no component's process was found")
	}
	return total, nil
}

// apiWrites counts the writes of one VMI's life: created, running, deleted, gone.
func apiWrites(ctx context.Context, b *bench) ([]Row, error) {
	const lives = 5
	own, err := b.ownWrites()
	if err != nil {
		return nil, err
	}
	all, err := b.allWrites(ctx)
	if err != nil {
		return nil, err
	}
	for i := range lives {
		vmi := b.vmi(fmt.Sprintf("life-%d", i))
		if _, err := b.untilRunning(ctx, vmi); err != nil {
			return nil, err
		}
		conn, err := b.console(ctx, vmi)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(until(conn, "login: "), conn.Close()); err != nil {
			return nil, err
		}
		if _, err := b.untilGone(ctx, vmi); err != nil {
			return nil, err
		}
	}
	ownAfter, err := b.ownWrites()
	if err != nil {
		return nil, err
	}
	allAfter, err := b.allWrites(ctx)
	if err != nil {
		return nil, err
	}
	return []Row{
		Row{Name: "vmi-writes-own", What: "API writes in one VMI's life, own components", Unit: "writes", Value: float64(ownAfter-own) / lives}.limit(8),
		Row{Name: "vmi-writes-all", What: "API writes in one VMI's life, all", Unit: "writes", Value: (allAfter - all) / lives}.limit(26),
	}, nil
}

// memory weighs the pod of one VM: what it holds beside QEMU, and what it asks for beyond the guest's memory.
func memory(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("memory")
	if _, err := b.untilRunning(ctx, vmi); err != nil {
		return nil, err
	}
	defer func() {
		_, gone := b.untilGone(ctx, vmi)
		err = errors.Join(err, gone)
	}()
	conn, err := b.console(ctx, vmi)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(until(conn, "login: "), conn.Close()); err != nil {
		return nil, err
	}
	pod, err := b.launcherPod(ctx, vmi)
	if err != nil {
		return nil, err
	}
	processes, err := instance.Processes(string(pod.UID))
	if err != nil {
		return nil, err
	}
	beside := int64(0)
	for _, p := range processes {
		if p.Command == "qemu-system-x86_64" {
			continue
		}
		pss, err := p.Memory("Pss")
		if err != nil {
			return nil, err
		}
		beside += pss
	}
	requested := int64(0)
	for _, c := range pod.Spec.Containers {
		requested += c.Resources.Requests.Memory().Value()
	}
	return []Row{
		Row{Name: "pod-pss", What: "PSS in the VM's pod beyond QEMU", Unit: "MiB", Value: mebibytes(beside)}.limit(40),
		Row{Name: "pod-request", What: "memory requested beyond the guest's", Unit: "MiB", Value: mebibytes(requested - vmi.Spec.Domain.Memory.Guest.Value())}.limit(100),
	}, nil
}

// virtctlVersion weighs the client's start.
func virtctlVersion(ctx context.Context, b *bench) ([]Row, error) {
	var times []time.Duration
	peak := int64(0)
	for range 2 * b.rounds {
		cmd := exec.CommandContext(ctx, b.Bin("virtctl"), "version", "--client")
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, usage.Maxrss<<10)
		}
	}
	return []Row{
		Row{Name: "virtctl-version", What: "virtctl version --client, median", Unit: "ms", Value: percentile(times, .5) * 1000}.limit(11),
		Row{Name: "virtctl-rss", What: "virtctl version --client, peak RSS", Unit: "MiB", Value: mebibytes(peak)}.limit(37),
	}, nil
}
