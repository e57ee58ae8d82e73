package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// writes counts writing requests by who, where known, and what they were.
type writes map[string]float64

// since takes off what there was before.
func (w writes) since(before writes) writes {
	news := writes{}
	for what, n := range w {
		if n > before[what] {
			news[what] = n - before[what]
		}
	}
	return news
}

// without takes off what is written to the resources named.
func (w writes) without(resources ...string) writes {
	rest := maps.Clone(w)
	maps.DeleteFunc(rest, func(what string, _ float64) bool {
		return slices.Contains(resources, what[strings.LastIndexByte(what, ' ')+1:])
	})
	return rest
}

// renewed is what kubelets, virt-handlers and leaders write from time to time, whatever runs.
var renewed = []string{"leases", "nodes", "nodes/status"}

// total counts those whose description ends in one of the suffixes; without any, all.
func (w writes) total(suffixes ...string) float64 {
	total := 0.0
	for what, n := range w {
		if len(suffixes) == 0 ||
			slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(what, s) }) {
			total += n
		}
	}
	return total
}

// explain lists the writes on standard error, the most frequent first.
func (b *bench) explain(title string, w writes) {
	if !b.verbose {
		return
	}
	fmt.Fprintf(os.Stderr, "  %s: %g\n", title, w.total())
	for _, what := range slices.SortedFunc(maps.Keys(w), func(x, y string) int {
		return cmp.Or(cmp.Compare(w[y], w[x]), cmp.Compare(x, y))
	}) {
		fmt.Fprintf(os.Stderr, "    %5g  %s\n", w[what], what)
	}
}

// allWrites counts the writing requests that the API server has answered, by anyone.
func (b *bench) allWrites(ctx context.Context) (writes, error) {
	text, err := b.Kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	all := writes{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range metric.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		switch labels["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			add(all, labels["verb"]+" "+join(labels["resource"], labels["subresource"]), metric.GetCounter().GetValue())
		}
	}
	return all, nil
}

// ownWrites counts the writes of virtkit's components in the instance's audit log, which has nobody else's.
func (b *bench) ownWrites() (writes, error) {
	file, err := os.Open(filepath.Join("/var/lib/virt-local", b.Name, "audit.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	own := writes{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		if event.Stage != "ResponseComplete" {
			continue
		}
		switch event.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			who := event.User.Username[strings.LastIndexByte(event.User.Username, ':')+1:]
			add(own, who+" "+event.Verb+" "+join(event.ObjectRef.Resource, event.ObjectRef.Subresource), 1)
		}
	}
	return own, lines.Err()
}

// add counts requests, unless they store nothing: who somebody is and what he may do, and tokens.
func add(to writes, what string, n float64) {
	if !strings.HasSuffix(what, "reviews") && !strings.HasSuffix(what, "serviceaccounts/token") {
		to[what] += n
	}
}

func join(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
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
	made := after.since(before).without("leases")
	b.explain("writes of the installation", made)
	return []Row{
		Row{Name: "install", What: "install → Available, images present", Unit: "s", Value: took.Seconds()}.AtMost(5),
		Row{
			Name: "install-writes", What: "API writes of an installation, by all", Unit: "writes",
			Value: made.total(),
		}.AtMost(120),
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
	rss, err := b.componentsMemory(ctx, "Rss")
	if err != nil {
		return nil, err
	}
	pss, err := b.componentsMemory(ctx, "Pss")
	if err != nil {
		return nil, err
	}
	return []Row{
		Row{
			Name: "idle-writes", What: "API writes a second, idle, no VM", Unit: "/s",
			Value: (after.total() - before.total()) / window.Seconds(),
		}.AtMost(.2),
		Row{
			Name:  "idle-rss",
			What:  "all components' RSS, idle, two nodes",
			Unit:  "MiB",
			Value: mebibytes(rss),
		}.AtMost(
			280,
		),
		{Name: "idle-pss", What: "… shared pages counted once (PSS)", Unit: "MiB", Value: mebibytes(pss)},
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

// componentsMemory adds up a line of smaps_rollup over the components' processes.
func (b *bench) componentsMemory(ctx context.Context, field string) (int64, error) {
	pods, err := b.Kube.CoreV1().Pods(names.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent})
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
			size, err := p.Memory(field)
			if err != nil {
				return 0, err
			}
			total += size
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
		conn, err := b.console(ctx, vmi, everything)
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
	ours, everybodys := ownAfter.since(own).without(renewed...), allAfter.since(all).without(renewed...)
	b.explain(fmt.Sprintf("own writes of %d lives", lives), ours)
	b.explain(fmt.Sprintf("all writes of %d lives", lives), everybodys)
	return []Row{
		Row{
			Name: "vmi-writes-own", What: "API writes in one VMI's life, own components, with events", Unit: "writes",
			Value: ours.total() / lives,
		}.AtMost(10),
		{Name: "vmi-events-own", What: "… of them events", Unit: "writes", Value: ours.total(" events") / lives},
		Row{
			Name: "vmi-writes-all", What: "API writes in one VMI's life, all", Unit: "writes",
			Value: everybodys.total() / lives,
		}.AtMost(26),
	}, nil
}

// memory weighs the pod of one VM: what it holds beside QEMU, and what it asks for beyond the guest's memory.
func memory(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("memory")
	gone, err := b.booted(ctx, vmi)
	defer func() { err = errors.Join(err, gone()) }()
	if err != nil {
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
		Row{Name: "pod-pss", What: "PSS in the VM's pod beyond QEMU", Unit: "MiB", Value: mebibytes(beside)}.AtMost(36),
		Row{
			Name: "pod-request", What: "memory requested beyond the guest's", Unit: "MiB",
			Value: mebibytes(requested - vmi.Spec.Domain.Memory.Guest.Value()),
		}.AtMost(90),
	}, nil
}
