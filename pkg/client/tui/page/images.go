package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/pace"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// imageRow is an image: of the catalogue, of the cluster, or both. Or it is a claim to which a disk is uploaded that is
// no image.
type imageRow struct {
	namespace string // of the claim, or the one that it would be pulled to
	ref       string // NAME/VERSION; empty for the upload of a disk
	entry     *images.Image
	claim     *store.Image // nil for one that is only in the catalogue
	pull      *Transfer    // the last pull of it; nil for none
	order     int          // in the catalogue, where the newest version is first
	users     []*store.Machine
}

func (r *imageRow) key() store.Key {
	if r.claim == nil {
		return store.Key{Namespace: "catalogue", Name: r.ref}
	}
	return store.Key{Namespace: "claim/" + r.claim.Namespace, Name: r.claim.Name}
}

// title names it.
func (r *imageRow) title() string {
	if r.ref == "" {
		return "claim " + r.claim.Name
	}
	return "image " + r.ref
}

// name and version are those of the image; the name is the claim's for an upload.
func (r *imageRow) name() string {
	if r.ref == "" {
		return r.claim.Name
	}
	name, _, _ := strings.Cut(r.ref, "/")
	return name
}

func (r *imageRow) version() string { _, version, _ := strings.Cut(r.ref, "/"); return version }

// pulling reports whether this dashboard pulls it.
func (r *imageRow) pulling() bool { return r.pull != nil && r.pull.running() }

// size returns the size of its claim, or of the one that it would be pulled to.
func (r *imageRow) size() string {
	switch {
	case r.claim != nil:
		return r.claim.Size
	case r.entry != nil:
		return r.entry.Size
	}
	return ""
}

// pullsTo returns the namespace that images are pulled to.
func (w *World) pullsTo() string { return cmp.Or(w.Namespace, w.Home, metav1.NamespaceDefault) }

// catalogue are the images that can be pulled, once they were read.
type catalogue struct {
	world *World
	found *images.Catalogue
	note  string
	read  reading[string]
}

// catalogueRead is what was read of the catalogue.
type catalogueRead struct {
	of    *catalogue
	found *images.Catalogue
	note  string
	err   error
}

// wants reads the catalogue, unless that was done.
func (c *catalogue) wants() tea.Cmd {
	namespace, actions := c.world.pullsTo(), c.world.Actions
	if !c.read.wanted(namespace, c.world.Now()) {
		return nil
	}
	return limited(func(ctx context.Context) tea.Msg {
		found, note, err := actions.Catalogue(ctx, namespace)
		return catalogueRead{c, found, note, err}
	})
}

// hear takes what was read, and reports whether the message was that.
func (c *catalogue) hear(msg tea.Msg) bool {
	m, ok := msg.(catalogueRead)
	if !ok || m.of != c {
		return false
	}
	if c.read.done(m.err, c.world.Now()); m.err == nil {
		c.note = m.note
		if c.note == "" || c.found == nil { // else what was read before is more
			c.found = m.found
		}
	}
	return true
}

// imageRows returns the images of the cluster, and those of the catalogue that the namespace does not have.
func imageRows(w *World, c *catalogue) []*imageRow {
	followImages(w)
	entries, order := map[string]*images.Image{}, map[string]int{}
	if c.found != nil {
		for i := range c.found.Images {
			image := &c.found.Images[i]
			entries[image.Ref()], order[image.Ref()] = image, i+1
		}
	}
	pulls := map[store.Key]*Transfer{}
	for _, t := range w.Transfers.All() {
		if t.image != "" && t.context == w.Context {
			pulls[store.Key{Namespace: t.namespace, Name: t.image}] = t
		}
	}
	users := imageUsers(w)
	var out []*imageRow
	here := map[string]bool{}
	for _, claim := range w.Images.Rows() {
		if claim.Phase == "" { // a copy
			continue
		}
		here[claim.Ref] = here[claim.Ref] || claim.Namespace == w.pullsTo()
		out = append(out, &imageRow{
			namespace: claim.Namespace, ref: claim.Ref, entry: entries[claim.Ref], claim: claim,
			order: order[claim.Ref],
			pull:  pulls[store.Key{Namespace: claim.Namespace, Name: claim.Ref}], users: users[claim.Key()],
		})
	}
	for ref, entry := range entries {
		if !here[ref] {
			out = append(out, &imageRow{
				namespace: w.pullsTo(), ref: ref, entry: entry, order: order[ref],
				pull: pulls[store.Key{Namespace: w.pullsTo(), Name: ref}],
			})
		}
	}
	return out
}

// imageUsers returns the machines that boot from the claim of an image or from a copy of it, by the claim.
func imageUsers(w *World) map[store.Key][]*store.Machine {
	out := map[store.Key][]*store.Machine{}
	for _, m := range w.Machines.Rows() {
		for _, name := range m.Claims {
			claim := w.Images.Get(store.Key{Namespace: m.Namespace, Name: name})
			if claim == nil {
				continue
			}
			of := claim.Key()
			if claim.Phase == "" && claim.Of != "" { // one with a phase is a row of its own
				of.Name = claim.Of
			}
			out[of] = append(out[of], m)
		}
	}
	for _, all := range out {
		slices.SortFunc(all, store.Compare)
	}
	return out
}

func followImages(w *World) {
	if w.FollowImages != nil {
		w.FollowImages()
	}
}

// Images is the page of cloud images.
type Images struct {
	rows[*imageRow]
	catalogue *catalogue
	above     int // how many lines are drawn above the table
}

// NewImages makes the page. What it shows is followed from then on.
func NewImages(w *World) *Images {
	p := &Images{catalogue: &catalogue{world: w}}
	p.rows = rows[*imageRow]{
		world: w, title: "Images", what: "images", one: "an image",
		state: func() store.State { return w.Images.State() },
		read:  func() []*imageRow { return imageRows(w, p.catalogue) },
	}
	p.table = widget.Table[*imageRow]{
		Columns: imageColumns(w), Key: (*imageRow).key, Now: w.Now, Theme: w.Theme,
		Labels: func(r *imageRow) map[string]string {
			if r.claim == nil {
				return nil
			}
			return r.claim.Labels
		},
	}
	type bound = *rows[*imageRow]
	keys := keymap.Map[bound]{{
		Keys: []string{"enter"}, Name: "details", Help: "everything about the image",
		Allowed: bound.none, Do: p.open(func(r *imageRow) Page { return newImage(w, r.key(), r.ref, p.catalogue) }),
	}}
	p.bind(append(keys, keymap.Of(imageBindings(), func(p bound) pulled { return pulled{w, p.current()} })...)...)
	p.Refresh()
	return p
}

// Start reads the catalogue.
func (p *Images) Start() tea.Cmd { return p.catalogue.wants() }

// Wants reads the catalogue again when that has failed.
func (p *Images) Wants() tea.Cmd { return p.catalogue.wants() }

// Update takes what was read.
func (p *Images) Update(msg tea.Msg) tea.Cmd {
	if p.catalogue.hear(msg) {
		p.Refresh()
	}
	return nil
}

func imageColumns(w *World) []widget.Column[*imageRow] {
	type column = widget.Column[*imageRow]
	word := func(title string, limit, priority int, of func(*imageRow) string) column {
		return column{
			Title: title, Max: limit, Priority: priority,
			Cell: func(r *imageRow, _ time.Time) widget.Cell { return widget.Cell{Text: of(r)} },
		}
	}
	name := word("NAME", 32, 0, (*imageRow).name)
	name.First = true
	name.Compare = func(a, b *imageRow) int {
		return cmp.Or(strings.Compare(a.name(), b.name()), cmp.Compare(a.order, b.order),
			strings.Compare(b.version(), a.version()), strings.Compare(a.namespace, b.namespace))
	}
	columns := []column{
		name, word("VERSION", 32, 0, (*imageRow).version),
		{Title: "STATE", Max: 14, Cell: func(r *imageRow, _ time.Time) widget.Cell {
			text, role := imageState(r)
			return state(w.Theme, text, role)
		}},
		word("SIZE", 0, 2, (*imageRow).size),
		word("CLAIM", 40, 1, func(r *imageRow) string {
			if r.claim == nil {
				return ""
			}
			return r.claim.Name
		}),
		word("USER", 20, 5, (*imageRow).account),
		{
			Title: "VMS", Priority: 3, Right: true,
			Cell: func(r *imageRow, _ time.Time) widget.Cell {
				return widget.Cell{Text: known(len(r.users) > 0, len(r.users))}
			}, Compare: func(a, b *imageRow) int { return len(b.users) - len(a.users) },
		},
		{Title: "DETAILS", Priority: 4, Flex: true, Cell: func(r *imageRow, _ time.Time) widget.Cell {
			text, role := imageDetails(w, r)
			return widget.Cell{Text: text, Role: role}
		}},
	}
	if w.Namespace == "" {
		namespace := word("NAMESPACE", 24, 1, func(r *imageRow) string {
			if r.claim == nil {
				return ""
			}
			return r.namespace
		})
		columns = append(columns[:2:2], append([]column{namespace}, columns[2:]...)...)
	}
	return columns
}

// account returns the account of the guest.
func (r *imageRow) account() string {
	switch {
	case r.claim != nil && r.claim.User != "":
		return r.claim.User
	case r.entry != nil:
		return r.entry.User
	}
	return ""
}

// imageState returns how an image is, in a word.
func imageState(r *imageRow) (string, theme.Role) {
	switch {
	case r.pulling():
		return strings.TrimSpace("Pulling " + r.pull.Reading().Percent()), theme.Busy
	case r.claim == nil:
		return "Available", theme.Dim
	case r.claim.Deleting:
		return "Deleting", theme.Warn
	case r.claim.Phase == images.PhaseReady:
		return r.claim.Phase, theme.Good
	case r.claim.Phase == images.PhasePulling || r.claim.Phase == images.PhaseUploading:
		return r.claim.Phase, theme.Busy
	}
	return r.claim.Phase, theme.Warn
}

// imageDetails returns what goes on with an image, who uses it, or what it is.
func imageDetails(w *World, r *imageRow) (string, theme.Role) {
	if r.pull != nil && (r.claim == nil || r.claim.Phase != images.PhaseReady) {
		if text, role := transferDetails(w, r.pull); text != "" && text != r.pull.To {
			return text, role
		}
	}
	if text := uploadDetails(r.claim); text != "" {
		return text, theme.Warn
	}
	switch {
	case len(r.users) > 0:
		return "of " + userNames(r.users), theme.Text
	case r.entry != nil:
		return r.entry.Title, theme.Dim
	}
	return "", theme.Dim
}

// uploadDetails returns how far the upload to a claim is or was, and why it does not go on; empty for none.
func uploadDetails(claim *store.Image) string {
	if claim == nil || claim.Phase == images.PhaseReady {
		return ""
	}
	var words []string
	if claim.Bytes > 0 && claim.Phase == images.PhaseIncomplete {
		words = append(words, fmt.Sprintf("%s of %s have come", pace.Size(float64(claim.Received)),
			pace.Size(float64(claim.Bytes))))
	} else if claim.Bytes > 0 {
		words = append(words, pace.Size(float64(claim.Bytes)))
	}
	if claim.Message != "" {
		words = append(words, claim.Message)
	}
	return strings.Join(words, "; ")
}

// userNames names the machines that use an image, of many the first.
func userNames(users []*store.Machine) string {
	var out []string
	for _, m := range users[:min(len(users), namedMost)] {
		out = append(out, m.Name)
	}
	text := strings.Join(out, ", ")
	if more := len(users) - namedMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// View draws the table, and above it what of it cannot be read.
func (p *Images) View(width, height int) string {
	var lines []string
	said := func(text string) {
		lines = append(lines, paragraph(p.world.Theme, theme.Warn, text, width)...)
	}
	c, state := p.catalogue, p.state()
	if c.read.err != nil {
		said("The catalogue is not shown: " + p.world.Say(c.read.err))
	}
	if c.note != "" {
		said("A catalogue in the cluster cannot be read: " + c.note)
	}
	if _, all := p.table.Len(); all > 0 && state.Err != nil && !state.Synced {
		said("Images of the cluster are not shown: " + p.world.Say(state.Err))
	}
	if p.above = len(lines); p.above > 0 && height-p.above > claimsLeast {
		return strings.Join(lines, "\n") + "\n" + p.rows.View(width, height-p.above)
	}
	p.above = 0
	return p.rows.View(width, height)
}

// Click passes a click on to the table, which may begin below other lines.
func (p *Images) Click(x, y int, twice bool) tea.Cmd { return p.rows.Click(x, y-p.above, twice) }
