package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// request returns what the form asks for.
func (p *Plug) request() volume.Options {
	return volume.Options{
		Volume: p.value(plugClaim), Disk: p.value(plugName), Instance: p.chosen[plugLasts] == untilRestart,
		DiskType: p.value(plugKind), Bus: p.value(plugBus), Serial: p.value(plugSerial), Cache: p.value(plugCache),
	}
}

func (p *Plug) refusal() string {
	o := p.request()
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case p.gone:
		return "the machine has been deleted"
	case o.Volume == "":
		return "claim: choose one"
	case o.Instance && !p.row.Alive():
		return "lasts: the machine does not run, so there is nothing that ends with a restart"
	}
	if c := p.claim(); c != nil && c.Status == claims.Terminating {
		return "claim: " + c.Name + " is being deleted, and no guest can have it any more"
	}
	if name := o.Name(); slices.Contains(p.disks, name) {
		return "disk name: the machine has a disk or volume " + name + "; give another"
	}
	if wrong := (*volume.FieldError)(nil); errors.As(o.CheckAdd(), &wrong) {
		for _, f := range plugForm {
			if f.flag == wrong.Field {
				return strings.ToLower(f.title) + ": " + wrong.Reason
			}
		}
		return wrong.Error()
	}
	return p.world.Actions.ForbiddenTo(p.row.Namespace, "update", volumesOf(o.Instance)+"/addvolume")
}

// volumesOf returns the resource whose volumes are changed.
func volumesOf(instance bool) string {
	if instance {
		return "virtualmachineinstances"
	}
	return "virtualmachines"
}

func (p *Plug) submit() tea.Cmd {
	o, key, machine, actions := p.request(), p.row.Key(), target(p.row), p.world.Actions
	lasts := "for good"
	if o.Instance {
		lasts = "until it restarts"
	}
	question := fmt.Sprintf("Plug claim %s into %s %s?", o.Volume, key, lasts)
	if c := p.claim(); c != nil && len(c.UsedBy) > 0 {
		question += " It is used by " + strings.Join(c.UsedBy, ", ") + "."
	}
	notice := fmt.Sprintf("Volume %s is on its way into %s", o.Name(), key)
	if !p.row.Alive() {
		notice = fmt.Sprintf("%s has volume %s with its next start", key, o.Name())
	}
	return Send(Ask{Question: question, Task: Task{
		Line: p.line(&o),
		Do:   func(ctx context.Context) error { return actions.Plug(ctx, machine, o) },
		Then: func(err error) tea.Msg {
			if err != nil { // it is shown, and the form stays
				return nil
			}
			return Back{Of: p, Notice: notice}
		},
	}})
}

// line returns the command line that does the same.
func (p *Plug) line(o *volume.Options) string {
	words := volumeWords(p.world, "addvolume", p.row.Key(), o)
	words = append(words, p.words(plugKind)...)
	return p.world.Line(append(words, "--namespace", p.row.Namespace)...)
}

// volumeWords begin the command line of a request.
func volumeWords(w *World, verb string, key store.Key, o *volume.Options) []string {
	name := key.Name
	if o.Instance {
		name = "vmi/" + name
	}
	return []string{w.Program, verb, name, "--volume-name", quoted(o.Volume)}
}
