package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	vmconditions "github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// head returns what the machine is and how it is.
func (s sections) head() []string {
	m := s.row
	lines := s.deleted(s.gone)
	add := func(name, value string, role theme.Role) { lines = append(lines, s.line(name, value, role)...) }
	ready := "not ready"
	if m.Ready {
		ready = "ready"
	}
	add("Status", s.t.State(statusRole(m))+" "+m.Status+", "+ready, statusRole(m))
	add("Trouble", m.Trouble, theme.Bad)
	add("Flags", conditions(m, s.world.moves()[m.Key()]), theme.Text)
	add("Run strategy", m.RunStrategy, theme.Text)
	add("Node", m.Node, theme.Text)
	add("Addresses", strings.Join(m.IPs, ", "), theme.Text)
	add("Guest OS", m.GuestOS, theme.Text)
	add("Size", sizeOf(m), theme.Text)
	if d := s.details; d != nil {
		if d.VM != nil && d.VM.Spec.Instancetype != nil {
			add("Instance type", d.VM.Spec.Instancetype.Name, theme.Text)
		}
		if d.VM != nil && d.VM.Spec.Preference != nil {
			add("Preference", d.VM.Spec.Preference.Name, theme.Text)
		}
		if d.VMI != nil && d.VMI.Status.Machine != nil {
			add("Machine type", d.VMI.Status.Machine.Type, theme.Text)
		}
	}
	add("Age", age(m.Created, s.now), theme.Text)
	add("Labels", labels(m.Labels), theme.Text)
	if s.objects.err != nil {
		lines = append(lines, s.failed(s.objects.err)...)
	}
	return lines
}

// sizeOf returns a machine's size in words; empty where its instance type says it.
func sizeOf(m *store.Machine) string {
	var words []string
	if m.CPUs > 0 {
		words = append(words, cpuCount(m.CPUs))
	}
	if !m.Memory.IsZero() {
		words = append(words, m.Memory.String())
	}
	return strings.Join(words, ", ")
}

// cpuCount returns a number of CPUs in words.
func cpuCount[T int | int32 | int64 | uint32](n T) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

// usage draws what the guest used lately, each in so many lines.
func (s sections) usage(height int) []string {
	series := s.world.Usage.Of(s.key)
	if series == nil || !s.row.Alive() {
		return nil
	}
	now := series.Now
	cpus := float64(max(1, s.row.CPUs)) * 1000
	title := s.title("Usage")
	if series.Missing() {
		title += s.t.Paint(theme.Warn, "  not read for "+age(series.Read, s.now))
	}
	lines := []string{title}
	for _, g := range []struct {
		name, text string
		values     []float64
		full       float64
	}{
		{"CPU", fmt.Sprintf("%.0f%%", float64(now.CPU)/cpus*100), series.CPU, cpus},
		{
			"Memory", widget.Bytes(float64(used(now))) + " of " + widget.Bytes(float64(now.Memory)),
			series.Memory, float64(now.Memory),
		},
		{
			"Network", "in " + widget.Bytes(float64(now.NetworkReceived)) + "/s, out " +
				widget.Bytes(float64(now.NetworkSent)) + "/s" + limitsOf(now.Limits, "interface "),
			series.Net, highest(series.Net),
		},
		{
			"Disk", "read " + widget.Bytes(float64(now.DiskRead)) + "/s, written " +
				widget.Bytes(float64(now.DiskWritten)) + "/s" + limitsOf(now.Limits, "disk "),
			series.Disk, highest(series.Disk),
		},
	} {
		name := "  " + s.t.Paint(theme.Dim, widget.Pad(s.t, g.name, nameWidth))
		if height == 1 {
			room := max(10, min(history, s.width-nameWidth-len(g.text)-6))
			lines = append(lines,
				name+s.t.Paint(theme.Accent, widget.Sparkline(s.t, g.values, g.full, room))+"  "+g.text)
			continue
		}
		lines = append(lines, name+g.text)
		for _, row := range widget.Graph(s.t, g.values, g.full, max(10, min(history, s.width-4)), height) {
			lines = append(lines, "  "+s.t.Paint(theme.Accent, row))
		}
	}
	return lines
}

// limitsOf returns what stands beside a rate of the limits of one kind of device: " (limits root: iops=500)".
func limitsOf(all []string, kind string) string {
	var out []string
	for _, text := range all {
		if limit, ok := strings.CutPrefix(text, kind); ok {
			out = append(out, limit)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (limits " + widget.Harmless(strings.Join(out, "; ")) + ")"
}

// conditions returns the conditions of the VM and its instance, each with its message.
func (s sections) conditions() []string {
	if s.details == nil {
		return nil
	}
	lines := []string{s.title("Conditions")}
	add := func(kind string, status corev1.ConditionStatus, since time.Time, reason, message string) {
		role := theme.Text
		if bad(kind, status) {
			role = theme.Warn
		}
		lines = append(lines, s.condition(role, kind, status, since, reason, message)...)
	}
	seen := map[string]bool{}
	if vmi := s.details.VMI; vmi != nil {
		for _, c := range vmi.Status.Conditions {
			seen[string(c.Type)] = true
			if vmconditions.Note(c.Type) {
				continue
			}
			add(string(c.Type), c.Status, c.LastTransitionTime.Time, c.Reason, c.Message)
		}
	}
	if vm := s.details.VM; vm != nil {
		for _, c := range vm.Status.Conditions {
			if !seen[string(c.Type)] { // the VM repeats its instance's
				add(string(c.Type), c.Status, c.LastTransitionTime.Time, c.Reason, c.Message)
			}
		}
	}
	if len(lines) == 1 {
		lines = append(lines, s.dim("none"))
	}
	return lines
}

// table draws rows under their titles, each column as wide as it has to be, the last as wide as there is room.
func (s sections) table(title string, header []string, rows [][]string) []string {
	if len(rows) == 0 {
		return nil
	}
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = ansi.StringWidth(h)
		for _, r := range rows {
			r[i] = widget.Harmless(r[i])
			widths[i] = max(widths[i], min(28, ansi.StringWidth(r[i])))
		}
	}
	draw := func(cells []string, role theme.Role) string {
		var b strings.Builder
		for i, c := range cells[:len(cells)-1] {
			b.WriteString(widget.Pad(s.t, c, widths[i]) + "  ")
		}
		b.WriteString(cells[len(cells)-1])
		return "  " + s.t.Paint(role, ansi.Truncate(b.String(), max(8, s.width-3), s.t.Ellipsis))
	}
	lines := []string{s.title(title), draw(header, theme.Header)}
	for _, r := range rows {
		lines = append(lines, draw(r, theme.Text))
	}
	return lines
}

func (s sections) disks() []string {
	if s.details == nil {
		return nil
	}
	// TARGET is libvirt's name of the disk. The guest names its disks as it finds them, and finds one by its serial.
	columns := []struct {
		title string
		of    func(describe.Disk) string
		may   bool // be left out, where it has nothing to say
	}{
		{"NAME", func(d describe.Disk) string { return d.Name }, false},
		{"TARGET", func(d describe.Disk) string { return strings.TrimSpace(d.Device + " " + d.Target) }, false},
		{"SIZE", func(d describe.Disk) string { return d.Size }, false},
		{"SERIAL", func(d describe.Disk) string { return d.Serial }, true},
		{"PLUGGED", func(d describe.Disk) string {
			if !d.Hotplug {
				return ""
			}
			return cmp.Or(d.Phase, "yes")
		}, true},
		{"LIMITS", func(d describe.Disk) string { return d.Limits }, true},
		{"SOURCE", func(d describe.Disk) string { return shortSource(d.Source) }, false},
	}
	disks := describe.Disks(s.details.VM, s.details.VMI)
	var header []string
	rows := make([][]string, len(disks))
	for _, c := range columns {
		if c.may && !slices.ContainsFunc(disks, func(d describe.Disk) bool { return c.of(d) != "" }) {
			continue
		}
		header = append(header, c.title)
		for i, d := range disks {
			rows[i] = append(rows[i], cmp.Or(c.of(d), "-"))
		}
	}
	return s.table("Disks", header, rows)
}

// shortSource returns a disk's source with shorter words for the usual kinds, so that the name after them can be read.
func shortSource(source string) string {
	kind, name, _ := strings.Cut(source, " ")
	switch kind {
	case "persistentVolumeClaim":
		return "claim " + name
	case "containerDisk":
		return "image " + name
	}
	return source
}

func (s sections) interfaces() []string {
	if s.details == nil || s.details.VMI == nil {
		return nil
	}
	limits := qos.Of(s.details.VMI.Annotations).Interfaces
	header := []string{"NAME", "IN GUEST", "MAC", "ADDRESSES"}
	limited := slices.ContainsFunc(s.details.VMI.Status.Interfaces,
		func(i v1.VirtualMachineInstanceNetworkInterface) bool { return limits[i.Name] != qos.Interface{} })
	if limited {
		header = slices.Insert(header, 3, "LIMITS")
	}
	var rows [][]string
	for _, i := range s.details.VMI.Status.Interfaces {
		row := []string{
			cmp.Or(i.Name, "-"), cmp.Or(i.InterfaceName, "-"), cmp.Or(i.MAC, "-"),
			cmp.Or(strings.Join(i.IPs, ", "), i.IP, "-"),
		}
		if limited {
			row = slices.Insert(row, 3, cmp.Or(limits[i.Name].String(), "-"))
		}
		rows = append(rows, row)
	}
	return s.table("Interfaces", header, rows)
}

// recent returns the newest events.
func (s sections) recent() []string {
	newest := s.Machine.events[:min(len(s.Machine.events), recentEvents)]
	return s.canvas.events(newest)
}

// events returns all events.
func (s sections) events() []string {
	return s.canvas.events(s.Machine.events)
}

func labels(set map[string]string) string {
	var out []string
	for k, v := range set {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
