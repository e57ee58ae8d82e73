package page

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/tui/screen"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// thumb is the picture of the screen as it was drawn last, and where on the page: in lines [from, to).
type thumb struct {
	lines         []string
	columns, rows int
	from, to      int
	seen          bool // whether any of them is on the screen
}

// Sizes of the page's parts, cells.
const (
	twoColumns  = 116 // the least width for two columns
	roomy       = 45  // the least height for tall graphs
	graphHeight = 4
	thumbHeight = 12
	consoleTail = 12
	nameWidth   = 14
	// conditionWidth is what comes before a condition's message, and conditionLines how many the message may have.
	conditionWidth = 42
	conditionLines = 4
)

// draw makes the whole page.
func (p *Machine) draw(width, height int) []string {
	if width < twoColumns {
		s := p.sections(width)
		all := [][]string{
			s.head(), s.usage(1), s.conditions(), s.disks(), s.interfaces(), s.guest(),
			s.console(consoleTail),
		}
		lines := together(all)
		picture := s.screen()
		if len(lines) > 0 && len(picture) > 0 {
			lines = append(lines, "")
		}
		p.thumb.from = len(lines)
		lines = append(lines, picture...)
		p.thumb.to = len(lines)
		return together([][]string{lines, s.events()})
	}
	left := (width - 2) / 2
	l, r := p.sections(left), p.sections(width-2-left)
	tall := graphHeight
	if height < roomy {
		tall /= 2
	}
	right := together([][]string{r.usage(tall), r.console(consoleTail)})
	picture := r.screen()
	if len(right) > 0 && len(picture) > 0 {
		right = append(right, "")
	}
	p.thumb.from = len(right)
	right = append(right, picture...)
	p.thumb.to = len(right)
	lines := beside(together([][]string{l.head(), l.conditions(), l.disks(), l.interfaces(), l.guest()}), right, left)
	return together([][]string{lines, p.sections(width).events()})
}

// together puts sections one under the other, with a line between.
func together(sections [][]string) []string {
	var out []string
	for _, s := range sections {
		if len(s) == 0 {
			continue
		}
		if len(out) > 0 {
			out = append(out, "")
		}
		out = append(out, s...)
	}
	return out
}

// beside puts two columns side by side, the first as wide as asked.
func beside(left, right []string, width int) []string {
	out := make([]string, max(len(left), len(right)))
	for i := range out {
		l, r := "", ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		if out[i] = l; r != "" {
			out[i] = widget.Fill(l, width, 1) + "  " + r
		}
	}
	return out
}

// canvas is what parts of a page are drawn on: so wide, at a time.
type canvas struct {
	t     *theme.Theme
	width int
	now   time.Time
}

func (w *World) canvas(width int) canvas { return canvas{w.Theme, width, w.Now()} }

// sections draws the parts of the page.
type sections struct {
	*Machine
	canvas
}

func (p *Machine) sections(width int) sections { return sections{p, p.world.canvas(width)} }

func (s canvas) title(text string) string { return "  " + s.t.Paint(theme.Title, text) }

// line is a name and what it is; nothing of nothing.
func (s canvas) line(name, value string, role theme.Role) []string {
	if value == "" {
		return nil
	}
	return []string{"  " + s.t.Paint(theme.Dim, widget.Pad(s.t, widget.Harmless(name), nameWidth)) +
		s.t.Paint(role, s.cut(value, s.width-nameWidth-3))}
}

func (s canvas) cut(text string, width int) string {
	return ansi.Truncate(widget.Harmless(text), max(8, width), s.t.Ellipsis)
}

func (s canvas) dim(text string) string { return "  " + s.t.Paint(theme.Dim, s.cut(text, s.width-3)) }

// failed is an error, whole.
func (s canvas) failed(err error) []string {
	lines := widget.Wrap("  "+widget.Harmless(err.Error()), s.width-1, 0)
	for i := range lines {
		lines[i] = s.t.Paint(theme.Bad, lines[i])
	}
	return lines
}

// head says what the machine is and how it is.
func (s sections) head() []string {
	m := s.row
	var lines []string
	add := func(name, value string, role theme.Role) { lines = append(lines, s.line(name, value, role)...) }
	if s.gone {
		lines = append(lines, s.t.Paint(theme.Bad, "  It has been deleted."))
	}
	ready := "not ready"
	if m.Ready {
		ready = "ready"
	}
	add("Status", m.Status+", "+ready, statusRole(m))
	add("Trouble", m.Trouble, theme.Bad)
	add("Marks", conditions(m), theme.Text)
	add("Run strategy", m.RunStrategy, theme.Text)
	add("Node", m.Node, theme.Text)
	add("Addresses", strings.Join(m.IPs, ", "), theme.Text)
	add("Guest OS", m.GuestOS, theme.Text)
	add("Size", cpuCount(m.CPUs)+", "+m.Memory.String(), theme.Text)
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

// cpuCount is a number of CPUs in words.
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
	lines := []string{s.title("Usage")}
	for _, g := range []struct {
		name, text string
		values     []float64
		full       float64
	}{
		{"CPU", fmt.Sprintf("%.0f%%", float64(now.CPU)/cpus*100), series.CPU, cpus},
		{
			"Memory", widget.Bytes(series.Memory[len(series.Memory)-1]) + " of " + widget.Bytes(float64(now.Memory)),
			series.Memory, float64(now.Memory),
		},
		{"Network", "in " + widget.Bytes(float64(now.NetworkReceived)) + "/s, out " +
			widget.Bytes(float64(now.NetworkSent)) + "/s", series.Net, slices.Max(series.Net)},
		{"Disk", "read " + widget.Bytes(float64(now.DiskRead)) + "/s, written " +
			widget.Bytes(float64(now.DiskWritten)) + "/s", series.Disk, slices.Max(series.Disk)},
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

// conditions are those of the VM and its instance, each with its message.
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

// condition is one, with its message beside it or below.
func (s canvas) condition(
	role theme.Role, kind string, status corev1.ConditionStatus, since time.Time, reason, message string,
) []string {
	line := "  " + s.t.Paint(role, widget.Pad(s.t, widget.Harmless(kind), 22)) + " " +
		widget.Pad(s.t, widget.Harmless(string(status)), 7) +
		s.t.Paint(theme.Dim, fmt.Sprintf("%6s", age(since, s.now)))
	text := widget.Harmless(strings.Trim(reason+": "+message, ": "))
	if room := s.width - conditionWidth; ansi.StringWidth(text) <= room {
		return []string{line + "  " + text}
	}
	lines := []string{line}
	wrapped := wrap(text, s.width-9)
	for _, l := range wrapped[:min(len(wrapped), conditionLines)] {
		lines = append(lines, "      "+s.t.Paint(theme.Dim, l))
	}
	return lines
}

// wrap breaks text into lines so wide.
func wrap(text string, width int) []string {
	return strings.Split(ansi.Wrap(text, max(20, width), ""), "\n")
}

// bad reports whether a condition is not as one would have it.
func bad(kind string, status corev1.ConditionStatus) bool {
	switch kind {
	case string(v1.VirtualMachineInstanceReady), string(v1.VirtualMachineInstanceIsMigratable),
		string(v1.VirtualMachineInstanceSynchronized), string(v1.VirtualMachineInstanceIsStorageLiveMigratable):
		return status != corev1.ConditionTrue
	case string(v1.VirtualMachineFailure), string(v1.VirtualMachineRestartRequired),
		string(v1.VirtualMachineInstancePaused):
		return status == corev1.ConditionTrue
	}
	return false
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
	var rows [][]string
	for _, d := range describe.Disks(s.details.VM, s.details.VMI) {
		state := d.Target
		if d.Hotplug {
			state = strings.TrimSpace(d.Target + " hotplugged " + d.Phase)
		}
		rows = append(rows, []string{d.Name, cmp.Or(d.Device, "-"), cmp.Or(d.Size, "-"), cmp.Or(state, "-"), d.Source})
	}
	return s.table("Disks", []string{"NAME", "DEVICE", "SIZE", "IN GUEST", "SOURCE"}, rows)
}

func (s sections) interfaces() []string {
	if s.details == nil || s.details.VMI == nil {
		return nil
	}
	var rows [][]string
	for _, i := range s.details.VMI.Status.Interfaces {
		rows = append(rows, []string{
			cmp.Or(i.Name, "-"), cmp.Or(i.InterfaceName, "-"), cmp.Or(i.MAC, "-"),
			cmp.Or(strings.Join(i.IPs, ", "), i.IP, "-"),
		})
	}
	return s.table("Interfaces", []string{"NAME", "IN GUEST", "MAC", "ADDRESSES"}, rows)
}

// guest is what the guest's agent says.
func (s sections) guest() []string {
	switch {
	case !s.row.Alive():
		return nil
	case !s.row.Agent:
		return []string{s.title("Guest"), s.dim("no guest agent answers")}
	case s.agent.err != nil:
		return append([]string{s.title("Guest")}, s.failed(s.agent.err)...)
	case s.Machine.guest == nil:
		return []string{s.title("Guest"), s.dim("Reading …")}
	}
	g := s.Machine.guest
	lines := []string{s.title("Guest")}
	add := func(name, value string) { lines = append(lines, s.line(name, value, theme.Text)...) }
	add("Host name", g.Hostname)
	add("System", cmp.Or(g.OS.PrettyName, strings.TrimSpace(g.OS.Name+" "+g.OS.Version)))
	add("Kernel", g.OS.KernelRelease)
	add("Time zone", g.Timezone)
	add("Agent", g.GAVersion)
	if g.FSFreezeStatus != "" {
		lines = append(lines, s.line("File systems", g.FSFreezeStatus, theme.Warn)...)
	}
	var users []string
	for _, u := range g.UserList {
		users = append(users, strings.TrimSuffix(u.UserName+"@"+u.Domain, "@"))
	}
	add("Users", strings.Join(users, ", "))
	for _, f := range g.FSInfo.Filesystems {
		share := 0.0
		if f.TotalBytes > 0 {
			share = float64(f.UsedBytes) / float64(f.TotalBytes)
		}
		role := theme.Text
		if share > 0.9 {
			role = theme.Warn
		}
		text := fmt.Sprintf("%s %3.0f%% of %-6s %s", widget.Bar(s.t, share, 10), share*100,
			widget.Bytes(float64(f.TotalBytes)), f.FileSystemType)
		lines = append(lines, s.line(f.MountPoint, text, role)...)
	}
	return lines
}

// console is the end of what the guest wrote to its serial console.
func (s sections) console(n int) []string {
	if s.Machine.console == nil || !s.row.Alive() {
		return nil
	}
	lines := []string{s.title("Console")}
	last := s.Machine.console.last(n)
	for _, l := range last {
		lines = append(lines, s.t.Paint(theme.Border, "  | ")+s.cut(l, s.width-5))
	}
	switch {
	case s.ended != nil:
		lines = append(lines, s.failed(s.ended)...)
	case len(last) == 0:
		lines = append(lines, s.dim("nothing was written yet"))
	}
	return lines
}

// screen is a small picture of the guest's screen. Its place is kept until there is one.
func (s sections) screen() []string {
	if s.row.Phase != v1.Running {
		return nil
	}
	lines := []string{s.title("Screen")}
	switch {
	case s.Machine.screen.err != nil:
		return append(lines, s.failed(s.Machine.screen.err)...)
	case s.picture == nil:
		return append(lines, s.dim("Reading …"))
	}
	columns, rows := screen.Thumb(s.picture.Bounds().Size(), max(10, s.width-4), thumbHeight)
	if th := &s.thumb; th.lines == nil || th.columns != columns || th.rows != rows {
		var ramp []string
		if s.t.Plain {
			ramp = shading
		}
		th.lines, th.columns, th.rows = screen.Thumbnail(s.picture, columns, rows, ramp), columns, rows
	}
	for _, l := range s.thumb.lines {
		lines = append(lines, "  "+l)
	}
	return lines
}

// shading is what a picture is drawn with where there are no colours, from dark to light.
var shading = strings.Split(" .:-=+*#%@", "")

func (s sections) events() []string {
	return append([]string{s.title("Events")}, timeline(s.t, s.Machine.events, s.now, s.width)...)
}

func labels(set map[string]string) string {
	var out []string
	for k, v := range set {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// maxSide bounds the sides of a guest's screen, pixels.
const maxSide = 8192

// decode reads a PNG that a guest has drawn.
func decode(data []byte) (image.Image, error) {
	config, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the picture of the screen: %w", err)
	}
	if config.Width > maxSide || config.Height > maxSide {
		return nil, fmt.Errorf("the picture of the screen has %d × %d pixels; more than %d each way are not drawn",
			config.Width, config.Height, maxSide)
	}
	return png.Decode(bytes.NewReader(data))
}
