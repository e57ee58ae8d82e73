package page

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/emulator"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Split is a machine's serial console with its events beside it, or below where there is no room. Every key but the
// escape goes to the guest. It attaches beside others who are at the console.
type Split struct {
	world  *World
	key    store.Key
	row    *store.Machine
	serial *serial
	events []*store.Event
	// back is how many lines before the last ones are shown, furthest how many there are.
	back, furthest, height int
	keys                   keymap.Map[*Split]
}

// NewSplit makes the page.
func NewSplit(w *World, key store.Key) *Split {
	p := &Split{world: w, key: key, serial: newSerial(w.Now)}
	leave := func(p *Split) tea.Cmd { return Send(Back{Of: p}) }
	open := func(p *Split) string {
		if p.serial.state().open {
			return "this key goes to the guest; Ctrl-] comes back"
		}
		return ""
	}
	scroll := func(by func(p *Split) int) func(*Split) tea.Cmd {
		return func(p *Split) tea.Cmd { p.back = max(0, min(p.back+by(p), p.furthest)); return nil }
	}
	p.keys = keymap.Map[*Split]{
		{
			Keys: []string{"ctrl+]"}, Name: "leave the console",
			Help: "back; every other key goes to the guest", Do: leave,
		},
		{
			Keys: []string{"shift+pgup"}, Name: "earlier", Help: "what the guest wrote before",
			Do: scroll(func(p *Split) int { return max(1, p.height-1) }),
		},
		{
			Keys: []string{"shift+pgdown"}, Name: "later", Help: "what the guest wrote after that",
			Do: scroll(func(p *Split) int { return -max(1, p.height-1) }),
		},
		{
			Keys: []string{"enter"}, Name: "connect again", Help: "open the console again after it was closed",
			Quiet: true, Allowed: func(p *Split) string {
				if !p.serial.state().ended {
					return "it is not closed"
				}
				return ""
			}, Do: func(p *Split) tea.Cmd { return p.serial.start(w.Actions, key) },
		},
		{Keys: []string{"esc"}, Help: "back, while there is no connection", Quiet: true, Allowed: open, Do: leave},
	}
	p.Refresh()
	return p
}

// Start opens the console.
func (p *Split) Start() tea.Cmd {
	return tea.Batch(p.serial.start(p.world.Actions, p.key), p.serial.next())
}

// Close leaves the console.
func (p *Split) Close() { p.serial.stop() }

// Grabs reports that keys are the guest's.
func (p *Split) Grabs() bool { return true }

// Typed gives a key to the guest, unless it is the page's own.
func (p *Split) Typed(m tea.KeyPressMsg) (tea.Cmd, bool) {
	own := []string{"ctrl+]", "shift+pgup", "shift+pgdown"}
	link := p.serial.state()
	if !link.open {
		own = append(own, "esc")
	}
	if link.ended {
		own = append(own, "enter")
	}
	key := m.String()
	for _, k := range own {
		if k == key {
			cmd, _, _ := p.keys.Handle(p, key)
			return cmd, true
		}
	}
	return p.send(func(t *emulator.Terminal) string { return t.Key(m) }), true
}

// send gives something to the guest, or says why not.
func (p *Split) send(text func(*emulator.Terminal) string) tea.Cmd {
	if p.world.ReadOnly {
		return Send(Notice{Text: "Nothing is sent to the guest: " + ReadOnly})
	}
	if p.serial.press(text) {
		p.back = 0
		return nil
	}
	switch link := p.serial.state(); {
	case link.ended:
		return Send(Notice{Text: "There is no connection: enter connects again, esc goes back"})
	case !link.open:
		return Send(Notice{Text: "There is no connection yet, and nothing was sent; esc goes back"})
	}
	return Send(Notice{Text: "That is more than the guest takes; it was not sent"})
}

// Update takes what was pasted, and hears of the connection.
func (p *Split) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case tea.PasteMsg:
		return p.send(func(t *emulator.Terminal) string { return t.Paste(m.Content) })
	case serialChanged:
		if m.serial == p.serial {
			return p.serial.next()
		}
	case serialEnded:
		if m.serial == p.serial {
			p.serial.ended(m)
		}
	}
	return nil
}

// Key hears of the mouse's wheel; other keys come by Typed.
func (p *Split) Key(key string) (tea.Cmd, bool, string) {
	switch key {
	case "up":
		p.back = min(p.back+1, p.furthest)
	case "down":
		p.back = max(0, p.back-1)
	default:
		return p.keys.Handle(p, key)
	}
	return nil, true, ""
}

// Hints returns the page's keys.
func (p *Split) Hints() []keymap.Hint { return p.keys.Hints(p) }

// Title returns whose console it is.
func (p *Split) Title() string { return "console of " + p.key.String() }

// Refresh reads the machine's events anew.
func (p *Split) Refresh() {
	p.row = p.world.Machines.Get(p.key)
	p.events = eventsOf(p.world, p.key)
}

// State returns the state of the connection to the console, and of that to the cluster.
func (p *Split) State() store.State {
	link := p.serial.state()
	return store.Worst(store.State{Synced: true, Since: link.since, Err: link.err}, connection(p.world))
}

// Sizes of the panes, cells.
const (
	eventsBeside = 36 // the least width of events beside the console
	eventsMost   = 72
	eventsBelow  = 4 // the least height of events below
)

// View draws both panes.
func (p *Split) View(width, height int) string {
	t := p.world.Theme
	if room := width - leastColumns - 3; room >= eventsBeside {
		right := min(max(room, width/3), eventsMost, room)
		left := width - right - 3
		return strings.Join(join(t, p.console(left, height), p.side(right, height), left), "\n")
	}
	below := max(eventsBelow, height/3)
	if height < 3*eventsBelow {
		below = 0
	}
	lines := p.console(width, height-below)
	if below > 0 {
		lines = append(lines, p.side(width, below)...)
	}
	return strings.Join(lines, "\n")
}

// join puts two panes side by side with a line between them.
func join(t *theme.Theme, left, right []string, width int) []string {
	line := " " + t.Paint(theme.Border, t.Vertical) + " "
	for i := range left {
		if i < len(right) {
			left[i] = widget.Fill(left[i], width, 1) + line + right[i]
		} else {
			left[i] = widget.Fill(left[i], width, 1) + line
		}
	}
	return left
}

// console draws the guest's screen below a line that says how the connection is.
func (p *Split) console(width, height int) []string {
	t := p.world.Theme
	link := p.serial.state()
	p.height = height - 1
	lines, furthest := p.serial.view(width, height-1, p.back, t.Plain || !link.open)
	p.furthest = furthest
	p.back = min(p.back, furthest)
	if !link.open {
		for i := range lines {
			lines[i] = t.Paint(theme.Dim, lines[i])
		}
	}
	head, role := p.head(link)
	return append([]string{t.Paint(role, ruled(t, head, width))}, lines...)
}

func (p *Split) head(link link) (string, theme.Role) {
	now := p.world.Now()
	switch {
	case link.open && p.back > 0:
		return "Console, earlier", theme.Warn
	case link.open && p.world.ReadOnly:
		return "Console, read-only", theme.Title
	case link.open:
		return "Console, Ctrl-] leaves", theme.Title
	case link.ended:
		return "Closed " + age(link.since, now) + " ago; enter connects again, esc leaves", theme.Bad
	case link.since.IsZero():
		if p.row == nil || !p.row.Alive() {
			return "Waiting for the guest to run; esc leaves", theme.Busy
		}
		return "Connecting; esc leaves", theme.Busy
	}
	return "Lost " + now.Sub(link.since).Round(time.Second).String() + " ago, connecting again; esc leaves", theme.Bad
}

// ruled returns a title with a line after it to the end.
func ruled(t *theme.Theme, title string, width int) string {
	text := t.Horizontal + " " + title + " "
	return widget.Fill(text+strings.Repeat(t.Horizontal, max(0, width-len([]rune(text)))), width, 1)
}

// side draws the events, and how the machine is.
func (p *Split) side(width, height int) []string {
	t := p.world.Theme
	title := "Events"
	if m := p.row; m != nil {
		title = m.Status + ", " + "events"
		if m.Node != "" {
			title = m.Status + " on " + widget.Harmless(m.Node) + ", events"
		}
	}
	lines := []string{t.Paint(theme.Title, ruled(t, title, width))}
	for _, l := range timeline(t, p.events, p.world.Now(), width) {
		if len(lines) == height {
			break
		}
		lines = append(lines, l)
	}
	return lines
}
