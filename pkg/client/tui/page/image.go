package page

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// Image is the page of one image. All of it comes from rows and the catalogue.
type Image struct {
	world  *World
	key    store.Key
	ref    string
	row    *imageRow // the last there was
	gone   bool
	events []*store.Event

	catalogue *catalogue
	keys      keymap.Map[*Image]
	window
}

// NewImage makes the page of the image of a claim.
func NewImage(w *World, claim store.Key, ref string) *Image {
	key := store.Key{Namespace: "claim/" + claim.Namespace, Name: claim.Name}
	return newImage(w, key, ref, &catalogue{world: w})
}

// newImage makes the page of the row with a key.
func newImage(w *World, key store.Key, ref string, c *catalogue) *Image {
	p := &Image{world: w, key: key, ref: ref, catalogue: c, keys: keymap.Of(imageBindings(), (*Image).pulled)}
	p.keys = append(p.keys, scrolling[*Image](func(p *Image) *window { return &p.window })...)
	p.Refresh()
	return p
}

func (p *Image) pulled() pulled {
	if p.gone {
		return pulled{p.world, nil}
	}
	return pulled{p.world, p.row}
}

// Title returns the image.
func (p *Image) Title() string {
	if p.ref == "" {
		return "claim " + p.key.Name
	}
	return "image " + p.ref
}

// State returns the state of the rows of claims.
func (p *Image) State() store.State { return p.world.Images.State() }

// Start reads the catalogue, if nobody has.
func (p *Image) Start() tea.Cmd { return p.catalogue.wants() }

// Wants reads the catalogue again when that has failed.
func (p *Image) Wants() tea.Cmd { return p.catalogue.wants() }

// Refresh reads the row and its events anew. Of an image that was not pulled it is the claim, once that is there.
func (p *Image) Refresh() {
	all := imageRows(p.world, p.catalogue)
	at := slices.IndexFunc(all, func(r *imageRow) bool { return r.key() == p.key })
	if at < 0 && p.key.Namespace == "catalogue" {
		at = slices.IndexFunc(all, func(r *imageRow) bool {
			return r.ref == p.ref && r.namespace == p.world.pullsTo()
		})
	}
	if p.gone = at < 0; p.gone {
		return
	}
	p.row, p.key = all[at], all[at].key()
	if claim := p.row.claim; claim != nil {
		p.events = eventsOn(p.world, "PersistentVolumeClaim", claim.Key())
	}
}

// Update takes what was read.
func (p *Image) Update(msg tea.Msg) tea.Cmd {
	if p.catalogue.hear(msg) {
		p.Refresh()
	}
	return nil
}

// Key does what a key is bound to.
func (p *Image) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Image) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the sections, in two columns where there is room, as far as they are scrolled to.
func (p *Image) View(width, height int) string {
	if p.row == nil {
		return absent(p.world, p.State(), "images", "There is no "+p.Title()+", or it has not come yet", width)
	}
	return p.view(p.world.Theme, p.draw(width), width, height)
}

func (p *Image) draw(width int) []string {
	all := p.world.canvas(width)
	sections := func(c canvas) []string { return together([][]string{p.sources(c), p.users(c)}) }
	below := all.events(p.events)
	if width < twoColumns {
		return together([][]string{p.head(all), sections(all), below})
	}
	left := (width - 2) / 2
	l, r := p.world.canvas(left), p.world.canvas(width-2-left)
	return together([][]string{beside(p.head(l), sections(r), left), below})
}

// head returns what the image is, and how its claim is.
func (p *Image) head(c canvas) []string {
	r := p.row
	lines := c.deleted(p.gone)
	add := func(name, value string, role theme.Role) { lines = append(lines, c.line(name, value, role)...) }
	if r.entry != nil {
		add("Title", r.entry.Title, theme.Text)
		add("Aliases", strings.Join(r.entry.Aliases, ", "), theme.Text)
	}
	word, role := imageState(r)
	add("State", c.t.State(role)+" "+word, role)
	if r.pull != nil {
		if text, role := transferDetails(p.world, r.pull); text != r.pull.To {
			add("Pull", text, role)
		}
	}
	add("Namespace", r.namespace, theme.Text)
	instancetype, preference := "", ""
	if r.entry != nil {
		instancetype, preference = r.entry.Instancetype, r.entry.Preference
	}
	if r.claim != nil {
		add("Claim", r.claim.Name, theme.Text)
		add("Class", r.claim.Class, theme.Text)
		instancetype, preference = r.claim.Instancetype, r.claim.Preference
	}
	add("Size", r.size(), theme.Text)
	add("User", r.account(), theme.Text)
	add("Instance type", instancetype, theme.Text)
	add("Preference", preference, theme.Text)
	if r.claim != nil {
		add("Age", age(r.claim.Created, c.now), theme.Text)
		add("Labels", labels(r.claim.Labels), theme.Text)
	}
	return lines
}

// sources lists where it comes from.
func (p *Image) sources(c canvas) []string {
	lines := []string{c.title("Comes from")}
	if p.row.entry == nil {
		return append(lines, c.dim("it is in no catalogue"))
	}
	for _, s := range p.row.entry.Sources {
		lines = append(lines, c.line(s.Arch, s.URL, theme.Text)...)
		switch {
		case s.Checksum != "":
			lines = append(lines, c.line("checksum", s.Checksum, theme.Dim)...)
		case s.Checksums != "":
			lines = append(lines, c.line("checksums", s.Checksums, theme.Dim)...)
		}
		if s.Signature != nil {
			lines = append(lines, c.line("signed by", s.Signature.Signer(), theme.Dim)...)
		}
	}
	return lines
}

// users lists the machines that boot from it or from a copy of it.
func (p *Image) users(c canvas) []string {
	lines := []string{c.title(fmt.Sprintf("VMs %d", len(p.row.users)))}
	if len(p.row.users) == 0 {
		return append(lines, c.dim("none"))
	}
	shown := p.row.users[:min(len(p.row.users), membersMost)]
	for _, m := range shown {
		lines = append(lines, c.line(m.Name, c.t.State(statusRole(m))+" "+m.Status, statusRole(m))...)
	}
	if more := len(p.row.users) - len(shown); more > 0 {
		lines = append(lines, c.dim(fmt.Sprintf("%d more; i shows all", more)))
	}
	return lines
}
