package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Snapshot is the page of one snapshot, restore or clone. All of it comes from rows.
type Snapshot struct {
	world  *World
	key    store.Key
	row    *store.Snapshot // the last there was
	gone   bool
	made   []*store.Snapshot
	events []*store.Event
	keys   keymap.Map[*Snapshot]
	window
}

// NewSnapshot makes the page of the row with a key.
func NewSnapshot(w *World, key store.Key) *Snapshot {
	followSnapshots(w)
	p := &Snapshot{world: w, key: key, keys: keymap.Of(savedBindings(), (*Snapshot).saved)}
	p.keys = append(p.keys, scrolling[*Snapshot](func(p *Snapshot) *window { return &p.window })...)
	p.Refresh()
	return p
}

func (p *Snapshot) saved() saved {
	if p.gone || p.row == nil {
		return saved{world: p.world}
	}
	return saved{world: p.world, rows: []*store.Snapshot{p.row}}
}

// Title returns the kind and the name.
func (p *Snapshot) Title() string {
	resource, namespace, _ := strings.Cut(p.key.Namespace, "/")
	return store.ShortOf(resource) + " " + namespace + "/" + p.key.Name
}

// State returns the state of the rows of the kind.
func (p *Snapshot) State() store.State {
	switch resource, _, _ := strings.Cut(p.key.Namespace, "/"); resource {
	case store.Restores:
		return p.world.Snapshots.Restores.State()
	case store.Clones:
		return p.world.Snapshots.Clones.State()
	}
	return p.world.Snapshots.Snapshots.State()
}

// Refresh reads the row, what was made of it, and its events anew.
func (p *Snapshot) Refresh() {
	row := p.world.Snapshots.Get(p.key)
	if p.gone = row == nil; !p.gone {
		p.row = row
	}
	if p.row == nil {
		return
	}
	p.made = slices.DeleteFunc(p.world.Snapshots.Rows(), func(s *store.Snapshot) bool { return s.Source() != p.key })
	slices.SortFunc(p.made, func(a, b *store.Snapshot) int { return b.Created.Compare(a.Created) })
	p.events = eventsOn(p.world, p.row.Kind, p.row.Object())
}

// Update does nothing: the page has no messages.
func (p *Snapshot) Update(tea.Msg) tea.Cmd { return nil }

// Key does what a key is bound to.
func (p *Snapshot) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Snapshot) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the sections, in two columns where there is room, as far as they are scrolled to.
func (p *Snapshot) View(width, height int) string {
	if p.row == nil {
		return absent(p.world, p.State(), "snapshots", "There is no "+p.Title()+", or it has not come yet", width)
	}
	return p.view(p.world.Theme, p.draw(width), width, height)
}

func (p *Snapshot) draw(width int) []string {
	all := p.world.canvas(width)
	events := all.events(p.events)
	if width < twoColumns {
		return together([][]string{p.head(all), p.volumes(all), p.offspring(all), p.conditions(all), events})
	}
	left := (width - 2) / 2
	l, r := p.world.canvas(left), p.world.canvas(width-2-left)
	right := together([][]string{p.volumes(r), p.offspring(r)})
	return together([][]string{beside(together([][]string{p.head(l), p.conditions(l)}), right, left), events})
}

// head returns what it is, how far it is, and how it was taken.
func (p *Snapshot) head(c canvas) []string {
	s := p.row
	lines := c.deleted(p.gone)
	add := func(name, value string, role theme.Role) { lines = append(lines, c.line(name, value, role)...) }
	long := func(name, value string, role theme.Role) {
		for i, part := range filled(wrap(widget.Harmless(value), c.width-nameWidth-3)...) {
			if i > 0 {
				name = " "
			}
			add(name, part, role)
		}
	}
	role := savedRole(s)
	add("Kind", s.Kind, theme.Text)
	switch s.Resource {
	case store.Snapshots:
		add("VM", s.Machine, theme.Text)
	case store.Restores:
		add("Snapshot", s.Of, theme.Text)
		add("VM", s.Target, theme.Text)
	default:
		made := "VM"
		if s.OfImage {
			made = "Claim"
		}
		add("Source", p.source(), theme.Text)
		add(made, s.Target, theme.Text)
	}
	add("State", c.t.State(role)+" "+s.Phase, role)
	if text, role := progressOf(s, c.now); s.Trouble != "" || !s.Ended {
		long("", text, role)
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s, %s ago", t.UTC().Format(time.RFC3339), age(t, c.now))
	}
	switch {
	case s.Resource == store.Snapshots:
		add("Taken", at(s.Taken), theme.Text)
	case s.Ended:
		add("Done", at(s.Taken), theme.Text)
	}
	for _, i := range s.Indications {
		long(i[0], i[1], theme.Text)
	}
	if how(s) == "offline" {
		add("Offline", "The VM did not run.", theme.Text)
	}
	if text, role := savedVolumes(p.world, s); s.Resource == store.Snapshots {
		if len(s.Excluded) > 0 {
			text += ", without " + strings.Join(s.Excluded, ", ")
		}
		add("Volumes", text, role)
	}
	add("Size", sizeText(p.world, s), theme.Text)
	if s.Resource == store.Snapshots {
		kept := "its VolumeSnapshots go with it"
		if s.Retain {
			kept = "its content stays"
		}
		add("When deleted", kept, theme.Text)
	}
	add("Made by", s.Maker, theme.Text)
	add("Age", age(s.Created, c.now), theme.Text)
	add("Labels", labels(s.Labels), theme.Text)
	return lines
}

// source returns what a clone is of.
func (p *Snapshot) source() string {
	switch {
	case p.row.Machine != "":
		return "VM " + p.row.Machine
	case p.row.OfImage:
		return "image on claim " + p.row.Of
	}
	return "snapshot " + p.row.Of
}

// volumes lists what a snapshot has, or the claims that a restore made.
func (p *Snapshot) volumes(c canvas) []string {
	if p.row.Resource == store.Clones {
		return nil
	}
	lines := []string{c.title("Volumes")}
	for _, claim := range p.row.Claims {
		lines = append(lines, c.line(claim[0], "claim "+claim[1], theme.Text)...)
	}
	for _, v := range p.world.Snapshots.VolumesOf(p.row) {
		role := theme.Busy
		switch {
		case v.Trouble != "":
			role = theme.Bad
		case v.Ready:
			role = theme.Good
		case v.VolumeSnapshot == "":
			role = theme.Dim
		}
		text := fmt.Sprintf("%s %s", c.t.State(role), v.Size.String())
		for _, part := range filled("claim "+v.Claim, v.Class, v.Trouble) {
			text += ", " + part
		}
		lines = append(lines, c.line(v.Name, text, role)...)
		lines = append(lines, c.line(" ", v.VolumeSnapshot, theme.Dim)...)
	}
	for _, name := range p.row.Excluded {
		lines = append(lines, c.line(name, "left out", theme.Warn)...)
	}
	if len(lines) == 1 {
		lines = append(lines, c.dim("none"))
	}
	return lines
}

// offspring lists the restores and clones of a snapshot.
func (p *Snapshot) offspring(c canvas) []string {
	if p.row.Resource != store.Snapshots {
		return nil
	}
	lines := []string{c.title("Made of it")}
	for _, s := range p.made {
		role := savedRole(s)
		text := fmt.Sprintf("%s %s, VM %s, %s ago", c.t.State(role), s.Phase, s.Target, age(s.Created, c.now))
		lines = append(lines, c.dim(s.Short()+"/"+s.Name))
		lines = append(lines, c.line(" ", text, role)...)
	}
	if len(lines) == 1 {
		lines = append(lines, c.dim("nothing"))
	}
	return lines
}

func (p *Snapshot) conditions(c canvas) []string {
	return c.conditions(p.row.Conditions, func(o store.Condition) bool {
		is := o.Status == corev1.ConditionTrue
		return is && o.Type == "Failure" || !is && o.Type == "Ready"
	})
}

// eventsOn returns the events of an object itself, the newest first.
func eventsOn(w *World, kind string, key store.Key) []*store.Event {
	out := slices.DeleteFunc(w.Events.Rows(), func(e *store.Event) bool {
		return e.Namespace != key.Namespace || e.Kind != kind || e.Object != key.Name
	})
	slices.SortFunc(out, newest)
	return out
}
