package page

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/png"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/logs"
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

// guest returns what the guest's agent says.
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

// console returns the end of what the guest wrote to its serial console.
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
		lines = append(lines, s.dim(s.unwritten()))
	}
	return lines
}

// unwritten returns why there is nothing of the guest's console.
func (s sections) unwritten() string {
	if s.details != nil && s.details.VMI != nil {
		if moved := logs.Elsewhere(s.details.VMI, time.Time{}); moved != "" {
			return moved + ", and it has written nothing since"
		}
	}
	return "nothing has come of it yet"
}

// screen returns a small picture of the guest's screen. Its place is kept until there is one.
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
