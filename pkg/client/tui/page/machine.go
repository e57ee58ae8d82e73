package page

import (
	"cmp"
	"context"
	"image"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
)

// Machine is the page of one virtual machine. Its row and its events come from the store; its objects are read when the
// row has changed, what the guest's agent says when there is one or when asked, and a picture of the screen every few
// seconds while that is looked at.
type Machine struct {
	world  *World
	key    store.Key
	row    *store.Machine // the last there was
	gone   bool
	events []*store.Event
	keys   keymap.Map[*Machine]

	details *Details
	objects reading[string]
	guest   *v1.VirtualMachineInstanceGuestAgentInfo
	agent   reading[guestOf]
	picture image.Image
	screen  reading[int64]
	console *tail
	tailing reading[string]
	ended   error // why there is no more of the console

	thumb thumb
	window
}

// reading is something that is read again when what it is of has changed.
type reading[T comparable] struct {
	of    T // the zero value is nothing
	going bool
	err   error
	at    time.Time // when the last one ended
}

// again is how long after a reading that failed it is tried again.
const again = 10 * time.Second

// wanted reports whether it is to be read, and takes note of it.
func (r *reading[T]) wanted(of T, now time.Time) bool {
	if r.going || r.of == of && (r.err == nil || now.Sub(r.at) < again) {
		return false
	}
	r.of, r.going = of, true
	return true
}

// expire has what was read well be wanted again once it is so old.
func (r *reading[T]) expire(after time.Duration, now time.Time) {
	if !r.going && r.err == nil && now.Sub(r.at) >= after {
		var nothing T
		r.of = nothing
	}
}

func (r *reading[T]) done(err error, now time.Time) { r.going, r.err, r.at = false, err, now }

// guestOf is which answer of an agent is wanted: of which instance, and how often it was asked for by hand.
type guestOf struct {
	uid   string
	asked int
}

type (
	machineRead struct {
		page    *Machine
		details *Details
		err     error
	}
	guestRead struct {
		page *Machine
		info *v1.VirtualMachineInstanceGuestAgentInfo
		err  error
	}
	screenRead struct {
		page    *Machine
		picture image.Image
		err     error
	}
)

// pictureEvery is the time between two pictures of the screen, seconds.
const pictureEvery = 5

// NewMachine makes the page.
func NewMachine(w *World, key store.Key) *Machine {
	p := &Machine{world: w, key: key, console: newTail()}
	p.keys = append(keymap.Of(machineBindings(), (*Machine).subject), keymap.Binding[*Machine]{
		Keys: []string{"r"}, Name: "read again", Help: "ask the server and the guest's agent again", Quiet: true,
		Do: func(p *Machine) tea.Cmd {
			p.objects.of, p.screen.of = "", 0
			p.agent.of.asked++
			p.agent.of.uid = ""
			return p.Wants()
		},
	})
	p.keys = append(p.keys,
		scrolling[*Machine](func(p *Machine) *window { return &p.window })...)
	p.Refresh()
	return p
}

func (p *Machine) subject() subject {
	if p.row == nil || p.gone {
		return subject{world: p.world}
	}
	return subject{world: p.world, machines: []*store.Machine{p.row}}
}

// Title returns the machine's name.
func (p *Machine) Title() string { return p.key.String() }

// State returns the state of the machines.
func (p *Machine) State() store.State { return p.world.Machines.State() }

// Refresh reads the machine and its events anew.
func (p *Machine) Refresh() {
	row := p.world.Machines.Get(p.key)
	p.gone = row == nil
	if row != nil {
		p.row = row
	}
	p.events = eventsOf(p.world, p.key)
}

// Start begins to read.
func (p *Machine) Start() tea.Cmd { return p.Wants() }

// Close ends what goes on.
func (p *Machine) Close() { p.console.stop() }

// Wants reads what has changed since it was read.
func (p *Machine) Wants() tea.Cmd {
	if p.row == nil || p.gone {
		return nil
	}
	m, actions, key, now := p.row, p.world.Actions, p.key, p.world.Now()
	var cmds []tea.Cmd
	if p.objects.wanted(m.Revision+" of "+key.String(), now) {
		cmds = append(cmds, limited(func(ctx context.Context) tea.Msg {
			details, err := actions.Machine(ctx, key, m.Instance)
			return machineRead{p, details, err}
		}))
	}
	if !m.Agent {
		p.guest, p.agent.of.uid = nil, ""
	} else if p.agent.wanted(guestOf{"agent of " + string(m.UID), p.agent.of.asked}, now) {
		cmds = append(cmds, limited(func(ctx context.Context) tea.Msg {
			info, err := actions.Guest(ctx, key)
			return guestRead{p, info, err}
		}))
	}
	if m.Phase == v1.Running && p.tailing.wanted("console of "+string(m.UID), now) {
		p.console.stop() // it has ended, or is another instance's
		p.console = newTail()
		cmds = append(cmds, p.console.start(actions, key))
	}
	switch {
	case m.Phase != v1.Running:
		p.picture = nil
	case p.thumb.seen && p.screen.wanted(now.Unix()/pictureEvery, now):
		cmds = append(cmds, limited(func(ctx context.Context) tea.Msg {
			data, err := actions.Screenshot(ctx, key)
			if err != nil {
				return screenRead{p, nil, err}
			}
			picture, err := decode(data)
			return screenRead{p, picture, err}
		}))
	}
	return tea.Batch(cmds...)
}

// limited makes a command of something that may not take too long.
func limited(do func(context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), readLimit)
		defer cancel()
		return do(ctx)
	}
}

// Update takes what was read.
func (p *Machine) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case machineRead:
		if m.page == p {
			p.objects.done(m.err, p.world.Now())
			if m.err == nil {
				p.details = m.details
			}
			return p.Wants() // it may have changed meanwhile
		}
	case guestRead:
		if m.page == p {
			p.agent.done(m.err, p.world.Now())
			p.guest = m.info
			if m.err != nil {
				p.guest = nil
			}
		}
	case screenRead:
		if m.page == p {
			p.screen.done(m.err, p.world.Now())
			p.picture, p.thumb.lines = m.picture, nil
		}
	case tailChanged:
		if m.tail == p.console {
			p.ended = nil
			return p.console.next()
		}
	case tailEnded: // a console that ends while the guest runs is read again, after a while
		if m.tail == p.console {
			p.ended = m.err
			p.tailing.done(cmp.Or(m.err, io.EOF), p.world.Now())
		}
	}
	return nil
}

// Key does what a key is bound to.
func (p *Machine) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Machine) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the sections, in two columns where there is room, as far as they are scrolled to.
func (p *Machine) View(width, height int) string {
	if p.row == nil {
		return absent(p.world, p.State(), "virtual machines", "There is no machine "+p.key.String(), width)
	}
	p.thumb.seen = false
	lines := p.draw(width, height)
	shown := p.view(p.world.Theme, lines, width, height)
	p.thumb.seen = p.thumb.from < p.offset+p.height && p.thumb.to > p.offset
	return shown
}
