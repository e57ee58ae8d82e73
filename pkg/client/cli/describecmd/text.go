package describecmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// page is a description being written, in the style of kubectl describe.
type page struct {
	table *cli.Table
	now   time.Time
}

func write(w io.Writer, r *describe.Report, now time.Time, more bool) error {
	p := &page{table: cli.NewDescription(w), now: now}
	if more {
		p.table.Row()
		p.table.Row("---")
	}
	p.head(r)
	if r.VMI != nil {
		p.instance(r.VMI)
	}
	for _, pod := range r.Pods {
		line := strings.TrimSpace(fmt.Sprintf("%s (%s) %s", pod.Name, pod.Phase, pod.Node))
		if pod.NotReady != "" {
			line += ", not Ready: " + pod.NotReady
		}
		p.line(0, "Pod", line)
	}
	if m := r.Migration; m != nil {
		p.line(0, "Migration", m.Name+" is "+m.Stage)
	}
	p.line(0, "Why", r.Why.Summary)
	p.snapshots(r)
	p.volumes(r)
	p.interfaces(r)
	p.conditions(r)
	p.events(r.Events)
	return p.table.Flush()
}

func (p *page) line(depth int, name, value string) {
	p.table.Row(strings.Repeat("  ", depth)+name+":", cmp.Or(value, "<none>"))
}

// section writes a table of its own.
func (p *page) section(title string, header []string, rows [][]string) {
	if len(rows) == 0 {
		p.line(0, title, "")
		return
	}
	p.table.Row(title + ":")
	rules := make([]string, len(header))
	for i, h := range header {
		rules[i] = strings.Repeat("-", len(h))
	}
	for _, row := range append([][]string{header, rules}, rows...) {
		for i := range row {
			row[i] = words(row[i])
		}
		row[0] = "  " + row[0]
		p.table.Row(row...)
	}
}

// words returns a text of any number of lines as one line.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func (p *page) age(at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, p.now.Sub(at)))
}

func (p *page) head(r *describe.Report) {
	switch {
	case r.VM != nil:
		vm := r.VM
		p.line(0, "Name", vm.Name)
		p.line(0, "Namespace", vm.Namespace)
		p.pairs("Labels", vm.Labels)
		p.pairs("Annotations", vm.Annotations)
		p.controlledBy(vm)
		p.line(0, "Created", fmt.Sprintf("%s (%s ago)", vm.CreationTimestamp.UTC().
			Format(time.RFC3339), p.age(vm.CreationTimestamp.Time)))
		strategy, err := vm.RunStrategy()
		if err != nil {
			strategy = "<invalid>"
		}
		p.line(0, "Run Strategy", string(strategy))
		p.line(0, "Status", string(vm.Status.PrintableStatus))
		if m := vm.Spec.Instancetype; m != nil {
			p.line(0, "Instancetype", strings.TrimPrefix(m.Kind+"/"+m.Name, "/"))
		}
		if m := vm.Spec.Preference; m != nil {
			p.line(0, "Preference", strings.TrimPrefix(m.Kind+"/"+m.Name, "/"))
		}
	default:
		vmi := r.VMI
		p.line(0, "Name", vmi.Name+" (an instance of its own)")
		p.line(0, "Namespace", vmi.Namespace)
		p.pairs("Labels", vmi.Labels)
		p.pairs("Annotations", vmi.Annotations)
		p.controlledBy(vmi)
	}
}

// controlledBy names the set that a machine belongs to, in kubectl's words.
func (p *page) controlledBy(machine metav1.Object) {
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		p.line(0, "Controlled By", owner.Kind+"/"+owner.Name)
	}
}

func (p *page) pairs(title string, pairs map[string]string) {
	first := true
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		name := ""
		if first {
			name = title + ":"
		}
		p.table.Row(name, key+"="+words(pairs[key]))
		first = false
	}
	if first {
		p.line(0, title, "")
	}
}

func (p *page) instance(vmi *v1.VirtualMachineInstance) {
	p.table.Row("Instance:", "")
	since := ""
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == vmi.Status.Phase {
			since = fmt.Sprintf(" (for %s)", p.age(t.PhaseTransitionTimestamp.Time))
		}
	}
	p.line(1, "Phase", string(vmi.Status.Phase)+since)
	p.line(1, "UID", string(vmi.UID))
	p.line(1, "Node", vmi.Status.NodeName)
	var ips []string
	for _, i := range vmi.Status.Interfaces {
		ips = append(ips, i.IPs...)
	}
	p.line(1, "IPs", strings.Join(ips, ", "))
	if t := vmi.Status.CurrentCPUTopology; t != nil {
		p.line(1, "CPU", topology(t.Sockets, t.Cores, t.Threads))
	}
	if m := vmi.Status.Memory; m != nil && m.GuestCurrent != nil {
		p.line(1, "Memory", m.GuestCurrent.String())
	}
	if m := vmi.Status.Machine; m != nil {
		p.line(1, "Machine", m.Type)
	}
	if os := vmi.Status.GuestOSInfo; os.PrettyName != "" || os.Name != "" {
		p.line(1, "Guest OS", cmp.Or(os.PrettyName, strings.TrimSpace(os.Name+" "+os.Version)))
		p.line(1, "Kernel", os.KernelRelease)
	}
	if s := vmi.Status.MigrationState; s != nil {
		p.line(1, "Last Migration",
			fmt.Sprintf("%s to %s, %s", s.SourceNode, s.TargetNode, outcome(s)))
	}
}

// snapshots writes a line for each of the VM's snapshots.
func (p *page) snapshots(r *describe.Report) {
	for _, s := range r.Snapshots {
		state := s.Phase
		if !s.Ready {
			state += ", not ready"
		}
		p.line(0, "Snapshot", fmt.Sprintf("%s (%s) %s ago", s.Name, state, p.age(s.Created.Time)))
	}
}

// topology returns how the virtual CPUs are laid out.
func topology(sockets, cores, threads uint32) string {
	count := func(n uint32, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	return count(sockets, "socket") + ", " + count(cores, "core") + ", " + count(threads, "thread")
}

// outcome returns how a migration is, or how it ended.
func outcome(s *v1.VirtualMachineInstanceMigrationState) string {
	switch {
	case migrations.Failed(s) && s.AbortRequested:
		return "cancelled"
	case migrations.Failed(s):
		return "failed"
	case migrations.Succeeded(s):
		return "completed"
	}
	return "going on"
}

func (p *page) volumes(r *describe.Report) {
	if r.VMI == nil && r.VM.Spec.Template == nil {
		return
	}
	var rows [][]string
	for _, d := range describe.Disks(r.VM, r.VMI) {
		rows = append(rows,
			[]string{
				d.Name, d.Source, cmp.Or(d.Device, "-"), cmp.Or(strings.TrimSpace(d.Target+" "+d.Phase), "-"),
				cmp.Or(d.Limits, "-"),
			})
	}
	p.section("Volumes", []string{"Name", "Source", "Device", "Target", "Limits"}, rows)
}

func (p *page) interfaces(r *describe.Report) {
	if r.VMI == nil {
		return
	}
	var rows [][]string
	limits := qos.Of(r.VMI.Annotations).Interfaces
	for _, i := range r.VMI.Status.Interfaces {
		rows = append(rows, []string{
			cmp.Or(i.Name, "-"), cmp.Or(i.InterfaceName, "-"), cmp.Or(i.MAC, "-"),
			cmp.Or(strings.Join(i.IPs, ","), "-"), cmp.Or(i.InfoSource, "-"),
			cmp.Or(limits[i.Name].String(), "-"),
		})
	}
	p.section("Interfaces", []string{"Name", "In Guest", "MAC", "IPs", "Known From", "Limits"}, rows)
}

func (p *page) conditions(r *describe.Report) {
	var rows [][]string
	add := func(object, kind string, status corev1.ConditionStatus, since time.Time, reason, message string) {
		rows = append(rows, []string{object, kind, string(status), p.age(since), cmp.Or(reason, "-"), message})
	}
	if r.VM != nil {
		for _, c := range r.VM.Status.Conditions {
			if r.VMI != nil && conditions.Mirrored(c.Type) {
				continue // it follows
			}
			add("vm", string(c.Type), c.Status, c.LastTransitionTime.Time, c.Reason, c.Message)
		}
	}
	if r.VMI != nil {
		for _, c := range r.VMI.Status.Conditions {
			if conditions.Note(c.Type) {
				continue
			}
			add("vmi", string(c.Type), c.Status, c.LastTransitionTime.Time, c.Reason, c.Message)
		}
	}
	p.section("Conditions", []string{"Of", "Type", "Status", "Since", "Reason", "Message"}, rows)
}

func (p *page) events(list []corev1.Event) {
	var rows [][]string
	for i := range list {
		e := &list[i]
		seen := p.age(events.When(e))
		if n := events.Count(e); n > 1 {
			seen = fmt.Sprintf("%s (x%d)", seen, n)
		}
		rows = append(rows, []string{e.Type, e.Reason, seen, strings.ToLower(e.InvolvedObject.Kind) + "/" +
			e.InvolvedObject.Name, e.Message})
	}
	p.section("Events", []string{"Type", "Reason", "Age", "Object", "Message"}, rows)
}
