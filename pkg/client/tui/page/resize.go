package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

// The fields of the form, in their order.
const (
	resizeVolume = iota
	resizeSize
)

var resizeForm = []formField{
	resizeVolume: {title: "Volume", example: "one of those below"},
	resizeSize:   {title: "Size", example: "20Gi"},
}

// resizing is what the page that resizes a machine's volumes knows.
type resizing struct {
	*Request
	machine *store.Machine // the row when the page was opened
	details *Details
	claims  []volume.Claim
	read    reading[string]
}

// resizingRead is what was read of the machine, and of the claims of its namespace if they may be read.
type resizingRead struct {
	of      *resizing
	details *Details
	claims  []volume.Claim
	err     error
}

// NewResize makes the page of a machine's volumes with their sizes, on which they are made larger.
func NewResize(w *World, m *store.Machine) *Request {
	p := &resizing{Request: newRequest(w, "resize volumes of "+m.Key().String(), "resizes it", resizeForm), machine: m}
	p.refuse, p.describe, p.ask, p.want, p.hear = p.refusal, p.says, p.asks, p.reads, p.heard
	return p.Request
}

// resizeRefusal returns why no volume of a machine can be resized, empty when one can.
func resizeRefusal(w *World, m *store.Machine) string {
	switch {
	case w.ReadOnly:
		return ReadOnly
	case m.Deleting:
		return "it is being deleted"
	}
	return w.Actions.ForbiddenTo(m.Namespace, "patch", client.Claims)
}

func (p *resizing) row() *store.Machine { return p.world.Machines.Get(p.machine.Key()) }

// reads reads the machine and the claims, and again when the machine has changed.
func (p *resizing) reads() tea.Cmd {
	m := p.row()
	if m == nil || !p.read.wanted(m.Revision+" of "+m.Key().String(), p.world.Now()) {
		return nil
	}
	actions, key, instance := p.world.Actions, m.Key(), m.Instance
	return limited(func(ctx context.Context) tea.Msg {
		details, err := actions.Machine(ctx, key, instance)
		out := resizingRead{of: p, details: details, err: err}
		if err == nil {
			if found, _, err := actions.Claims(ctx, key.Namespace); err == nil { // the sizes of those that no guest has
				out.claims = found
			}
		}
		return out
	})
}

func (p *resizing) heard(msg tea.Msg) {
	m, ok := msg.(resizingRead)
	if !ok || m.of != p {
		return
	}
	if p.read.done(m.err, p.world.Now()); m.err != nil {
		return
	}
	p.details, p.claims = m.details, m.claims
	if on := p.volumes(); len(on) == 1 && p.value(resizeVolume) == "" {
		p.inputs[resizeVolume].SetValue(widget.Harmless(on[0].Name))
		p.inputs[resizeVolume].CursorEnd()
	}
}

// sizedVolume is a volume on a claim. Disk is the size of the guest's disk, and Claim that of the claim; either may be
// empty. Status is the claim's; empty where that is not known.
type sizedVolume struct{ Name, ClaimName, Claim, Disk, Status string }

func (p *resizing) volumes() []sizedVolume { return sizedVolumes(p.details, p.claims) }

// sizedVolumes returns a machine's volumes on claims; known are those of its namespace, as far as they may be read.
func sizedVolumes(details *Details, known []volume.Claim) []sizedVolume {
	if details == nil {
		return nil
	}
	spec := &v1.VirtualMachineInstanceSpec{}
	status := map[string]v1.VolumeStatus{}
	switch vm, vmi := details.VM, details.VMI; {
	case vmi != nil:
		spec = &vmi.Spec
		for _, s := range vmi.Status.VolumeStatus {
			status[s.Name] = s
		}
	case vm != nil && vm.Spec.Template != nil:
		spec = &vm.Spec.Template.Spec
	}
	var out []sizedVolume
	for _, d := range describe.Disks(details.VM, details.VMI) {
		at := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == d.Name })
		if at < 0 || !claims.Storage(&spec.Volumes[at]) {
			continue
		}
		s, row := status[d.Name], sizedVolume{Name: d.Name, ClaimName: claims.Name(&spec.Volumes[at])}
		if s.Size > 0 {
			row.Disk = resource.NewQuantity(s.Size, resource.BinarySI).String()
		}
		if info := s.PersistentVolumeClaimInfo; info != nil {
			if q, ok := info.Capacity["storage"]; ok {
				row.Claim = q.String()
			}
		}
		for _, c := range known {
			if c.Name == row.ClaimName {
				row.Claim, row.Status = c.Size, c.Status
			}
		}
		out = append(out, row)
	}
	return out
}

func (p *resizing) refusal() string {
	m := p.row()
	if m == nil {
		if p.world.Machines.State().Synced {
			return "the machine has been deleted"
		}
		m = p.machine
	}
	if why := resizeRefusal(p.world, m); why != "" {
		return why
	}
	switch {
	case p.details == nil && p.read.err != nil:
		return "the machine cannot be read: " + p.world.Say(p.read.err)
	case p.details == nil:
		return "the machine is being read"
	}
	on := p.volumes()
	if len(on) == 0 {
		return "it has no volume on a claim"
	}
	name := p.value(resizeVolume)
	at := slices.IndexFunc(on, func(v sizedVolume) bool { return v.Name == name })
	switch {
	case name == "":
		return "volume: name one of those below"
	case at < 0:
		return fmt.Sprintf("volume: %q is none of those below", name)
	case p.value(resizeSize) == "":
		return "size: give one, such as 20Gi"
	}
	size, err := volume.ParseSize(p.value(resizeSize))
	if err != nil {
		return "size: " + err.Error()
	}
	if has, err := resource.ParseQuantity(on[at].Claim); err == nil && size.Cmp(has) <= 0 {
		return fmt.Sprintf("size: claim %s has %s, and no claim shrinks", on[at].ClaimName, &has)
	}
	return ""
}

// says which volumes there are, with their sizes, and how far an expansion is.
func (p *resizing) says() []widget.Line {
	var lines []widget.Line
	for _, v := range p.volumes() {
		text := fmt.Sprintf("%s is claim %s, %s", v.Name, v.ClaimName, cmp.Or(v.Claim, "of a size that is not known"))
		if v.Disk != "" {
			text += "; the guest's disk has " + v.Disk
		}
		lines = append(lines, widget.Line{Text: text + ".", Role: theme.Text})
		if v.Status == claims.Terminating {
			lines = append(lines, widget.Line{Text: sentence(dying(v.ClaimName)), Role: theme.Bad})
		}
	}
	if p.details != nil && p.details.VMI != nil {
		if c := expansion.ConditionOf(p.details.VMI); c != nil {
			lines = append(lines, widget.Line{Text: sentence(c.Message), Role: theme.Busy})
		}
	}
	return append(lines, widget.Line{
		Text: "The guest sees a larger disk; its partitions and file systems grow by its own means.", Role: theme.Dim,
	})
}

// dying returns what a claim's deletion does to a machine that has it.
func dying(claim string) string {
	return "claim " + claim + " is being deleted: its data is lost once the guest stops or no longer has it"
}

func (p *resizing) asks() tea.Cmd {
	key, actions, name := p.machine.Key(), p.world.Actions, p.value(resizeVolume)
	size, err := volume.ParseSize(p.value(resizeSize))
	if err != nil {
		return nil
	}
	machine, called := target(p.machine), key.Name
	if machine.Instance {
		called = "vmi/" + called
	}
	return Send(Ask{
		Question: fmt.Sprintf("Make volume %s of %s %s large? It never shrinks again.", name, key, &size),
		Task: Task{
			Line: p.world.Line(p.world.Program, "volume resize", quoted(called), quoted(name), size.String(),
				"--namespace", key.Namespace),
			Do: func(ctx context.Context) error { return actions.Resize(ctx, machine, name, size) },
			Then: func(err error) tea.Msg {
				if err != nil { // it is shown, and the form stays
					return nil
				}
				return Back{Of: p.Request, Notice: fmt.Sprintf("Volume %s of %s grows to %s", name, key, &size)}
			},
		},
	})
}
