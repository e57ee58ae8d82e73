package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// The fields of the form, in their order.
const (
	moveClass = iota
	moveVolumes
)

var moveForm = []formField{
	moveClass:   {title: "To class", example: "a storage class"},
	moveVolumes: {title: "Volumes", example: "all that can be copied, or some of those below"},
}

// moving is what the page knows that copies a machine's disks to other claims, or takes that back.
type moving struct {
	*Request
	machine *store.Machine // the row when the page was opened
	details *Details
	read    reading[string]
}

// movingRead is what was read of the machine.
type movingRead struct {
	of      *moving
	details *Details
	err     error
}

// NewMove makes the page that copies a machine's disks to claims of another storage class, and while disks are being
// copied takes that back.
func NewMove(w *World, m *store.Machine) *Request {
	p := &moving{Request: newRequest(w, "move volumes of "+m.Key().String(), "copies them", moveForm), machine: m}
	p.refuse, p.describe, p.ask, p.want, p.hear = p.refusal, p.says, p.asks, p.reads, p.heard
	return p.Request
}

// moveRefusal returns why no disk of a machine can be copied, empty when one can.
func moveRefusal(w *World, m *store.Machine) string {
	switch {
	case w.ReadOnly:
		return ReadOnly
	case m.Deleting:
		return "it is being deleted"
	case m.Instance:
		return "it has no VirtualMachine, whose spec would name the new claims"
	}
	return cmp.Or(w.Actions.ForbiddenTo(m.Namespace, "patch", client.VMs),
		w.Actions.ForbiddenTo(m.Namespace, "create", client.Claims))
}

func (p *moving) row() *store.Machine { return p.world.Machines.Get(p.machine.Key()) }

// reads reads the machine, and again when it has changed.
func (p *moving) reads() tea.Cmd {
	return readVM(p.world, p.row(), &p.read,
		func(details *Details, err error) tea.Msg { return movingRead{p, details, err} })
}

// readVM reads a VM whose row is m, nil for one that is gone, unless it was read since it has changed; give makes the
// message of what was read.
func readVM(w *World, m *store.Machine, read *reading[string], give func(*Details, error) tea.Msg) tea.Cmd {
	if m == nil || !read.wanted(m.Revision+" of "+m.Key().String(), w.Now()) {
		return nil
	}
	actions, key := w.Actions, m.Key()
	return limited(func(ctx context.Context) tea.Msg { return give(actions.Machine(ctx, key, false)) })
}

func (p *moving) heard(msg tea.Msg) {
	m, ok := msg.(movingRead)
	if !ok || m.of != p {
		return
	}
	if p.read.done(m.err, p.world.Now()); m.err != nil {
		return
	}
	p.details, p.verb = m.details, "copies them"
	if p.underWay() != nil {
		p.verb = "takes the copy back"
	}
}

// underWay returns what is being copied, or was when the guest ended; nil when nothing is.
func (p *moving) underWay() *v1.VolumeUpdateState {
	if p.details == nil || p.details.VM == nil {
		return nil
	}
	return volumemigration.Away(p.details.VM, p.details.VMI)
}

func (p *moving) refusal() string {
	m := p.row()
	if m == nil {
		if p.world.Machines.State().Synced {
			return "the machine has been deleted"
		}
		m = p.machine
	}
	if why := moveRefusal(p.world, m); why != "" {
		return why
	}
	switch {
	case p.details == nil && p.read.err != nil:
		return "the machine cannot be read: " + p.world.Say(p.read.err)
	case p.details == nil:
		return "the machine is being read"
	case p.underWay() != nil:
		return ""
	case p.details.VMI == nil || !m.Alive():
		return "the guest does not run, and only disks of a running guest are copied"
	}
	on := sizedVolumes(p.details, nil)
	if len(on) == 0 {
		return "it has no volume on a claim"
	}
	if p.value(moveClass) == "" {
		return "to class: name a storage class"
	}
	for _, name := range p.named() {
		if !slices.ContainsFunc(on, func(v sizedVolume) bool { return v.Name == name }) {
			return fmt.Sprintf("volumes: %q is none of those below", name)
		}
		if why := volumemigration.Fixed(p.details.VMI, name); why != "" {
			return fmt.Sprintf("volumes: %s cannot be copied: %s", name, why)
		}
	}
	return ""
}

// named returns the volumes that were typed, each once; none means all.
func (p *moving) named() []string {
	var out []string
	for _, name := range strings.FieldsFunc(p.value(moveVolumes), func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// says what is being copied, or which volumes there are, and what becomes of the old claims.
func (p *moving) says() []widget.Line {
	if state := p.underWay(); state != nil {
		return append(copiesOf(state), widget.Line{
			Text: "The copy is taken back: the VM names the old claims again, which have the data.", Role: theme.Dim,
		})
	}
	var lines []widget.Line
	for _, v := range sizedVolumes(p.details, nil) {
		text := fmt.Sprintf("%s is claim %s, %s", v.Name, v.ClaimName, cmp.Or(v.Claim, "of a size that is not known"))
		if p.details.VMI != nil {
			if why := volumemigration.Fixed(p.details.VMI, v.Name); why != "" {
				text += "; it cannot be copied: " + why
			}
		}
		lines = append(lines, widget.Line{Text: text + ".", Role: theme.Text})
	}
	return append(lines, widget.Line{
		Text: "The guest migrates to another node, and its disks are copied with its memory. The old claims are " +
			"kept, unless annotation " + volumemigration.CopiedClaimsAnnotation + " says Delete.", Role: theme.Dim,
	})
}

// copiesOf says what is being copied.
func copiesOf(state *v1.VolumeUpdateState) []widget.Line {
	var lines []widget.Line
	for _, m := range state.VolumeMigrationState.MigratedVolumes {
		if m.SourcePVCInfo == nil || m.DestinationPVCInfo == nil {
			continue
		}
		lines = append(lines, widget.Line{
			Text: fmt.Sprintf("%s is copied from claim %s to claim %s.", m.VolumeName, m.SourcePVCInfo.ClaimName,
				m.DestinationPVCInfo.ClaimName), Role: theme.Busy,
		})
	}
	return lines
}

func (p *moving) asks() tea.Cmd {
	key, actions, machine := p.machine.Key(), p.world.Actions, target(p.machine)
	line := []string{p.world.Program, "volume migrate", quoted(key.Name)}
	ask, notice := Ask{}, ""
	if p.underWay() != nil {
		ask.Question = fmt.Sprintf("Take back the copy of disks of %s?", key)
		ask.Task.Do = func(ctx context.Context) error { return actions.CancelMove(ctx, machine) }
		line, notice = append(line, "--cancel"), fmt.Sprintf("The copy of disks of %s is taken back", key)
	} else {
		class, names := p.value(moveClass), p.named()
		what := "the disks"
		if len(names) > 0 {
			what = "volume " + strings.Join(names, ", ")
		}
		ask.Question = fmt.Sprintf("Copy %s of %s to claims of class %s? The guest migrates to another node.", what,
			key, class)
		ask.Task.Do = func(ctx context.Context) error { return actions.Move(ctx, machine, names, class) }
		for _, name := range names {
			line = append(line, quoted(name))
		}
		line = append(line, "--storage-class", quoted(class))
		notice = fmt.Sprintf("Disks of %s are on their way to class %s", key, class)
	}
	ask.Task.Line = p.world.Line(append(line, "--namespace", key.Namespace)...)
	ask.Task.Then = func(err error) tea.Msg {
		if err != nil { // it is shown, and the form stays
			return nil
		}
		return Back{Of: p.Request, Notice: notice}
	}
	return Send(ask)
}
