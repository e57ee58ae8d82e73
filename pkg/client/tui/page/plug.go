package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// The fields of the form, in their order.
const (
	plugClaim = iota
	plugLasts
	plugKind
	plugBus
	plugName
	plugSerial
	plugCache
	plugFields
)

// untilRestart is the value of plugLasts that changes only the instance.
const untilRestart = "instance"

var plugForm = [plugFields]formField{
	plugClaim: {title: "Claim", flag: "volume-name", example: "type to find, enter takes the one below"},
	plugLasts: {title: "Lasts", options: []option{{"", "for good"}, {untilRestart, "until restart"}}},
	plugKind:  {title: "Disk type", flag: "disk-type", options: defaulted(volume.DiskTypes)},
	plugBus:   {title: "Bus", flag: "bus", options: defaulted(volume.Buses)},
	plugName:  {title: "Disk name", flag: "disk-name", example: "the claim's"},
	plugSerial: {
		title: "Serial", flag: "serial",
		example: "the claim's; the guest has /dev/disk/by-id/*SERIAL",
	},
	plugCache: {title: "Cache", flag: "cache", options: append([]option{{"", "default"}}, options(volume.Caches)...)},
}

// Plug plugs a volume into a machine: a form, with the claims of the machine's namespace below it.
type Plug struct {
	world *World
	row   *store.Machine // the last there was
	gone  bool
	fieldset
	begun  bool // whether a claim was typed or taken: an empty form is no mistake
	table  widget.Table[*volume.Claim]
	claims []*volume.Claim
	users  bool // whether it is known who uses the claims
	list   reading[string]
	disks  []string // the names of the machine's disks and volumes
	object reading[string]
	keys   keymap.Map[*Plug]
}

type claimsRead struct {
	page   *Plug
	claims []volume.Claim
	users  bool
	err    error
}

// disksRead is what the machine has already.
type disksRead struct {
	page    *Plug
	details *Details
	err     error
}

// NewPlug makes the page.
func NewPlug(w *World, m *store.Machine) *Plug {
	p := &Plug{world: w, row: m, fieldset: newFieldset(w, plugForm[:])}
	p.offers = func(i int, o option) bool { // for an instance there is no VM that it could last in
		return i != plugLasts || !p.row.Instance || o.value == untilRestart
	}
	if m.Instance {
		p.chosen[plugLasts] = untilRestart
	}
	p.table = widget.Table[*volume.Claim]{
		Columns: p.columns(), Key: func(c *volume.Claim) store.Key { return store.Key{Name: c.Name} },
		Now: w.Now, Theme: w.Theme,
	}
	p.keys = plugKeys()
	p.Refresh()
	return p
}

func plugKeys() keymap.Map[*Plug] {
	// In the first field the keys that move are for the claims below it.
	move := func(by int, list func(*widget.Table[*volume.Claim])) func(*Plug) tea.Cmd {
		return func(p *Plug) tea.Cmd {
			if p.at == plugClaim && list != nil {
				list(&p.table)
				return nil
			}
			return p.moveTo(p.at + by)
		}
	}
	choose := func(by int) func(*Plug) tea.Cmd {
		return func(p *Plug) tea.Cmd { p.choose(by); return nil }
	}
	type list = *widget.Table[*volume.Claim]
	return keymap.Map[*Plug]{
		{
			Keys: []string{"ctrl+s"}, Name: "submit", Help: "plug the volume in", Allowed: (*Plug).refusal,
			Do: (*Plug).submit,
		},
		{
			Keys: []string{"enter", "tab"}, Name: "next", Help: "take the claim under the cursor; the next field",
			Do: func(p *Plug) tea.Cmd {
				if p.at == plugClaim {
					p.take()
				}
				return p.moveTo(p.at + 1)
			},
		},
		{Keys: []string{"right", "space"}, Name: "change", Help: "another value of the field", Do: choose(1)},
		{Keys: []string{"left"}, Help: "the value before", Quiet: true, Do: choose(-1)},
		{
			Keys: []string{"down"}, Help: "the next claim, or field", Quiet: true,
			Do: move(1, func(t list) { t.Move(1) }),
		},
		{
			Keys: []string{"up"}, Help: "the claim or field before", Quiet: true,
			Do: move(-1, func(t list) { t.Move(-1) }),
		},
		{Keys: []string{"shift+tab"}, Help: "the field before", Quiet: true, Do: move(-1, nil)},
		{
			Keys: []string{"pgdown"}, Help: "one page of claims down", Quiet: true,
			Do: func(p *Plug) tea.Cmd { p.table.Page(1); return nil },
		},
		{
			Keys: []string{"pgup"}, Help: "one page of claims up", Quiet: true,
			Do: func(p *Plug) tea.Cmd { p.table.Page(-1); return nil },
		},
	}
}

func (p *Plug) columns() []widget.Column[*volume.Claim] {
	type column = widget.Column[*volume.Claim]
	word := func(title string, limit, priority int, of func(*volume.Claim) string) column {
		return column{
			Title: title, Max: limit, Priority: priority,
			Cell: func(c *volume.Claim, _ time.Time) widget.Cell { return widget.Cell{Text: of(c)} },
		}
	}
	name := word("CLAIM", 63, 0, func(c *volume.Claim) string { return c.Name })
	name.First = true
	size := word("SIZE", 12, 0, func(c *volume.Claim) string { return c.Size })
	size.Right = true
	return []column{
		name, size,
		word("CLASS", 24, 2, func(c *volume.Claim) string { return c.Class }),
		word("ACCESS", 16, 1, func(c *volume.Claim) string { return c.Modes }),
		{Title: "STATUS", Max: 14, Priority: 3, Cell: func(c *volume.Claim, _ time.Time) widget.Cell {
			roles := map[string]theme.Role{"Bound": theme.Good, "Pending": theme.Busy}
			role, ok := roles[c.Status]
			if !ok {
				role = theme.Bad
			}
			return state(p.world.Theme, cmp.Or(c.Status, "Unknown"), role)
		}},
		{Title: "USED BY", Flex: true, Cell: func(c *volume.Claim, _ time.Time) widget.Cell {
			if !p.users {
				return widget.Cell{Text: "not known", Role: theme.Dim}
			}
			return widget.Cell{Text: strings.Join(c.UsedBy, ", "), Role: theme.Warn}
		}},
	}
}

// Start reads the claims.
func (p *Plug) Start() tea.Cmd { return tea.Batch(p.inputs[p.at].Focus(), p.Wants()) }

// claimsEvery is how old the claims may be that are chosen from.
const claimsEvery = 5 * time.Second

// Wants reads the claims, and again after a while: others make, use and delete them meanwhile.
func (p *Plug) Wants() tea.Cmd { return tea.Batch(p.wantClaims(), p.wantDisks()) }

// wantDisks reads the machine when it has changed.
func (p *Plug) wantDisks() tea.Cmd {
	row, actions := p.row, p.world.Actions
	if !p.object.wanted(row.Revision+" of "+row.Key().String(), p.world.Now()) {
		return nil
	}
	return limited(func(ctx context.Context) tea.Msg {
		details, err := actions.Machine(ctx, row.Key(), row.Instance)
		return disksRead{p, details, err}
	})
}

func (p *Plug) wantClaims() tea.Cmd {
	p.list.expire(claimsEvery, p.world.Now())
	if !p.list.wanted("claims of "+p.row.Namespace, p.world.Now()) {
		return nil
	}
	actions, namespace := p.world.Actions, p.row.Namespace
	return limited(func(ctx context.Context) tea.Msg {
		found, users, err := actions.Claims(ctx, namespace)
		return claimsRead{p, found, users, err}
	})
}

// Update takes what was read, and what was pasted.
func (p *Plug) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case tea.PasteMsg:
		return p.paste(m, p.give)
	case claimsRead:
		if m.page != p {
			return nil
		}
		p.list.done(m.err, p.world.Now())
		if m.err != nil {
			return nil
		}
		first := p.claims == nil
		p.claims, p.users = []*volume.Claim{}, m.users
		for i := range m.claims {
			p.claims = append(p.claims, &m.claims[i])
		}
		p.table.SetRows(p.claims)
		if first {
			p.find()
		}
	case disksRead:
		if m.page != p {
			return nil
		}
		if p.object.done(m.err, p.world.Now()); m.err == nil {
			p.disks = diskNames(m.details)
		}
	}
	return nil
}

// Typed gives what is no key of the form to the field.
func (p *Plug) Typed(m tea.KeyPressMsg) (tea.Cmd, bool) {
	return typedOn(p, &p.fieldset, p.keys, p.give, m)
}

func (p *Plug) give(msg tea.Msg) tea.Cmd {
	before := p.value(p.at)
	cmd := p.enter(msg)
	if p.at == plugClaim && p.value(p.at) != before {
		p.begun = true
		p.find()
	}
	return cmd
}

// diskNames returns the names that the disks and volumes of a machine have, of its VM and of its instance.
func diskNames(d *Details) []string {
	var names []string
	of := func(s *v1.VirtualMachineInstanceSpec) {
		for i := range s.Domain.Devices.Disks {
			names = append(names, s.Domain.Devices.Disks[i].Name)
		}
		for i := range s.Volumes {
			names = append(names, s.Volumes[i].Name)
		}
	}
	if d.VM != nil && d.VM.Spec.Template != nil {
		of(&d.VM.Spec.Template.Spec)
	}
	if d.VMI != nil {
		of(&d.VMI.Spec)
	}
	return names
}

// find shows the claims that match what was typed, with the cursor on the one of that name, or on the first.
func (p *Plug) find() {
	text := p.value(plugClaim)
	if f, err := filter.Parse(text); err == nil { // one that is not finished yet leaves what is shown
		p.table.SetFilter(f)
	}
	p.table.Top()
	p.table.Select(store.Key{Name: text})
}

// take takes the claim under the cursor. What was typed stays where no claim matches: perhaps none could be read.
func (p *Plug) take() {
	c, ok := p.table.Current()
	if !ok {
		return
	}
	p.begun = true
	p.inputs[plugClaim].SetValue(widget.Harmless(c.Name))
	p.find()
}

// claim returns the claim that the form names, nil if there is none of that name.
func (p *Plug) claim() *volume.Claim {
	name := p.value(plugClaim)
	if at := slices.IndexFunc(p.claims, func(c *volume.Claim) bool { return c.Name == name }); at >= 0 {
		return p.claims[at]
	}
	return nil
}

// Title names the machine.
func (p *Plug) Title() string { return "plug into " + p.row.Key().String() }

// Refresh reads the machine's row anew.
func (p *Plug) Refresh() {
	p.row, p.gone = p.world.again(p.row)
}

// State returns the state of the connection.
func (p *Plug) State() store.State { return connection(p.world) }

// Key does what a key is bound to.
func (p *Plug) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Plug) Hints() []keymap.Hint { return p.keys.Hints(p) }
