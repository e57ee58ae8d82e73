// Package top turns two readings of what guests have used into what they use: rows with rates.
package top

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// Kind of a Report.
const Kind = "TopReport"

// Report is what `top -o json` prints: what running guests use.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Items are the guests.
	Items []Row `json:"items"`
	// Unreachable are nodes whose guests are missing.
	Unreachable []stats.Unreachable `json:"unreachable,omitempty"`
	// Unanswered are running guests that did not answer in time, and are not among the items.
	Unanswered []stats.Unanswered `json:"unanswered,omitempty"`
	// Fresh are running guests, NAMESPACE/NAME, that have no rates yet: the next report may have them.
	Fresh []string `json:"-"`
}

// RowLists returns the key of the guests.
func (r *Report) RowLists() []string { return []string{"items"} }

// ObjectNames returns the guests' instances, as kubectl names objects.
func (r *Report) ObjectNames() []string {
	var out []string
	for i := range r.Items {
		out = append(out, "virtualmachineinstance.kubevirt.io/"+r.Items[i].Name)
	}
	return out
}

// Row is one guest.
type Row struct {
	// Namespace and Name are the machine's, Node where it runs.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// CPU is the use of processors in thousandths of one: 1500 is one and a half. VCPUs is how many the guest has.
	CPU   int64  `json:"cpuMilli"`
	VCPUs uint64 `json:"vcpus"`
	// Memory is what the guest has, MemoryUsed what it says it uses (0: it does not say), MemoryResident what QEMU
	// holds; bytes.
	Memory         uint64 `json:"memoryBytes"`
	MemoryUsed     uint64 `json:"memoryUsedBytes,omitempty"`
	MemoryResident uint64 `json:"memoryResidentBytes"`
	// NetworkReceived, NetworkSent, DiskRead and DiskWritten are the guest's, in bytes a second.
	NetworkReceived int64 `json:"networkReceivedBytesPerSecond"`
	NetworkSent     int64 `json:"networkSentBytesPerSecond"`
	DiskRead        int64 `json:"diskReadBytesPerSecond"`
	DiskWritten     int64 `json:"diskWrittenBytesPerSecond"`
	// NetworkReceivedLimit, NetworkSentLimit, DiskReadLimit and DiskWrittenLimit are the most that these may be, in
	// bytes a second; absent where one of the guest's interfaces, or of its disks, has no limit.
	NetworkReceivedLimit uint64 `json:"networkReceivedLimitBytesPerSecond,omitempty"`
	NetworkSentLimit     uint64 `json:"networkSentLimitBytesPerSecond,omitempty"`
	DiskReadLimit        uint64 `json:"diskReadLimitBytesPerSecond,omitempty"`
	DiskWrittenLimit     uint64 `json:"diskWrittenLimitBytesPerSecond,omitempty"`
	// Limits are those of each disk and interface that has some, as set: disk root: iops=500,bps=50Mi.
	Limits []string `json:"limits,omitempty"`
}

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Items = slices.Clone(r.Items)
	out.Unreachable = slices.Clone(r.Unreachable)
	out.Unanswered, out.Fresh = slices.Clone(r.Unanswered), slices.Clone(r.Fresh)
	return &out
}

// Rates makes rows of a reading and the one before. A guest that is not in both, or that began anew between them, has
// no rates yet and is among the fresh; one that did not answer one of them is among the unanswered.
func Rates(before, now stats.List) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}, Items: []Row{},
		Unreachable: now.Unreachable, Unanswered: slices.Clone(now.Unanswered),
	}
	was := map[string]*stats.Guest{}
	for i := range before.Items {
		g := &before.Items[i]
		was[g.Namespace+"/"+g.Name] = g
	}
	for i := range now.Items {
		g := &now.Items[i]
		old := was[g.Namespace+"/"+g.Name]
		if old == nil || old.Node != g.Node || g.CPUTime < old.CPUTime || !g.Time.After(old.Time) {
			r.Fresh = append(r.Fresh, g.Namespace+"/"+g.Name)
			continue
		}
		r.Items = append(r.Items, row(old, g))
	}
	for i := range before.Unanswered {
		late := &before.Unanswered[i]
		answered := slices.ContainsFunc(now.Items, func(g stats.Guest) bool {
			return g.Namespace == late.Namespace && g.Name == late.Name
		})
		compared := slices.ContainsFunc(r.Items, func(row Row) bool {
			return row.Namespace == late.Namespace && row.Name == late.Name
		})
		if answered && !compared { // there is nothing to compare it with
			r.Unanswered = append(r.Unanswered, *late)
		}
	}
	return r
}

func row(old, g *stats.Guest) Row {
	seconds := g.Time.Sub(old.Time).Seconds()
	rate := func(old, now uint64) int64 {
		if now < old {
			return 0 // an interface or a disk was taken away
		}
		return int64(float64(now-old) / seconds)
	}
	received, sent := g.Network()
	receivedBefore, sentBefore := old.Network()
	read, written := g.Storage()
	readBefore, writtenBefore := old.Storage()
	out := Row{
		Namespace: g.Namespace, Name: g.Name, Node: g.Node, VCPUs: g.VCPUs,
		CPU:    int64(float64(g.CPUTime-old.CPUTime) / 1e6 / seconds),
		Memory: g.Memory.Guest, MemoryUsed: g.Memory.Used, MemoryResident: g.Memory.Resident,
		NetworkReceived: rate(receivedBefore, received), NetworkSent: rate(sentBefore, sent),
		DiskRead: rate(readBefore, read), DiskWritten: rate(writtenBefore, written), Limits: g.DeviceLimits,
	}
	if l := g.Limits; l != nil {
		out.NetworkReceivedLimit, out.NetworkSentLimit = l.Received, l.Sent
		out.DiskReadLimit, out.DiskWrittenLimit = l.Read, l.Written
	}
	return out
}

// keys are what rows can be sorted by, the greatest first but for names.
var keys = map[string]func(a, b *Row) int{
	"cpu":    func(a, b *Row) int { return cmp.Compare(b.CPU, a.CPU) },
	"memory": func(a, b *Row) int { return cmp.Compare(b.MemoryResident, a.MemoryResident) },
	"network": func(a, b *Row) int {
		return cmp.Compare(b.NetworkReceived+b.NetworkSent, a.NetworkReceived+a.NetworkSent)
	},
	"disk": func(a, b *Row) int { return cmp.Compare(b.DiskRead+b.DiskWritten, a.DiskRead+a.DiskWritten) },
	"node": func(a, b *Row) int { return strings.Compare(a.Node, b.Node) },
	"name": func(a, b *Row) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) },
}

// Keys names them.
func Keys() []string {
	var out []string
	for key := range keys {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// Sort sorts the rows by one of Keys; equal ones by name.
func (r *Report) Sort(by string) error {
	compare, known := keys[by]
	if !known {
		return fmt.Errorf("sort key %q is not one of %s", by, strings.Join(Keys(), ", "))
	}
	slices.SortFunc(r.Items, func(a, b Row) int { return cmp.Or(compare(&a, &b), keys["name"](&a, &b)) })
	slices.SortFunc(r.Unanswered, func(a, b stats.Unanswered) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return nil
}

// Watch reads every interval and gives each pair of readings to show, until ctx ends or show fails. The first pair
// comes after the first interval. A reading that fails ends it when the server refuses, or unless it is patient; the
// first one always does.
func Watch(
	ctx context.Context, c *client.Client, namespace string, interval time.Duration, show func(*Report) error,
	patient bool,
) error {
	read := watched{client: c, namespace: namespace, outage: outage.Follow(ctx)}
	defer read.outage.End()
	before, _, err := read.next(ctx)
	if err != nil {
		return err
	}
	read.patient = patient
	seen := seen{}
	seen.before(before)
	for {
		// An answer that came late is no reason to ask again at once.
		if err := action.Sleep(ctx, interval); err != nil {
			return err
		}
		now, answered, err := read.next(ctx)
		if err != nil {
			return err
		}
		if !answered {
			continue
		}
		was := seen.before(now)
		was.Unanswered = before.Unanswered
		if err := show(Rates(was, now)); err != nil {
			return err
		}
		before = now
	}
}

// seen has by NAMESPACE/NAME the last two readings of each guest.
type seen map[string]struct{ older, newer stats.Guest }

// before takes a list of readings, and returns for each of its guests the one to compare it with. Nodes may answer
// twice with one reading; it is compared with the same as the first time. Guests of which no node says anything any
// more are forgotten, once all nodes have answered.
func (s seen) before(now stats.List) (was stats.List) {
	if len(now.Unreachable) == 0 {
		there := map[string]bool{}
		for i := range now.Items {
			there[now.Items[i].Namespace+"/"+now.Items[i].Name] = true
		}
		for i := range now.Unanswered {
			there[now.Unanswered[i].Namespace+"/"+now.Unanswered[i].Name] = true
		}
		maps.DeleteFunc(s, func(key string, _ struct{ older, newer stats.Guest }) bool { return !there[key] })
	}
	for i := range now.Items {
		g := &now.Items[i]
		key := g.Namespace + "/" + g.Name
		last := s[key]
		if !g.Time.Equal(last.newer.Time) {
			last.older, last.newer = last.newer, *g
			s[key] = last
		}
		if !last.older.Time.IsZero() {
			was.Items = append(was.Items, last.older)
		}
	}
	return was
}

// watched is what Watch reads, over outages.
type watched struct {
	client    *client.Client
	namespace string
	patient   bool
	outage    *outage.Follower
}

// next reads once; ok is false where nobody answers.
func (r *watched) next(ctx context.Context) (now stats.List, ok bool, err error) {
	r.outage.Asks()
	now, err = r.client.Stats(ctx, r.namespace)
	switch {
	case ctx.Err() != nil:
		return now, false, ctx.Err()
	case err != nil && (!r.patient || client.Refused(err)):
		return now, false, err
	case err != nil:
		r.outage.Lost(ctx, err)
		return now, false, nil
	}
	r.outage.Answered()
	return now, true, nil
}
