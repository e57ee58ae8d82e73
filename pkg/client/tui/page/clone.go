package page

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// cloning is what the page that clones from a snapshot knows.
type cloning struct {
	*Request
	row *store.Snapshot
}

// NewClone makes the page that makes another VM of a snapshot.
func NewClone(w *World, s *store.Snapshot) *Request {
	followSnapshots(w)
	p := &cloning{row: s, Request: newRequest(w, "clone from "+s.Object().String(), "makes the VM", []formField{
		{title: "New VM", example: "its name"},
	})}
	p.refuse, p.describe, p.ask = p.refusal, p.says, p.asks
	return p.Request
}

func (p *cloning) refusal() string {
	p.row = latest(p.world, p.row)
	s := saved{world: p.world, rows: []*store.Snapshot{p.row}}
	if why := s.ready(store.Clones); why != "" {
		return why
	}
	name := p.value(0)
	if wrong := misnamed(name); wrong != "" {
		return wrong
	}
	if p.world.Machines.Get(store.Key{Namespace: p.row.Namespace, Name: name}) != nil {
		return "name: there is a VM " + p.row.Namespace + "/" + name
	}
	return ""
}

func (p *cloning) says() []widget.Line {
	text := fmt.Sprintf("A new VM is made as %s was %s ago", p.row.Machine, age(p.row.Created, p.world.Now()))
	if len(p.row.Included) > 0 {
		text += ", with copies of its volumes " + strings.Join(p.row.Included, ", ")
	}
	lines := []widget.Line{
		{Text: text + ".", Role: theme.Text},
		{
			Text: "It has MAC addresses, a firmware UUID and a serial number of its own, and does not start by itself.",
			Role: theme.Dim,
		},
	}
	data, anew := excluded(p.row)
	if len(data) > 0 {
		lines = append(lines, widget.Line{
			Text: "Not in it, since the snapshot has no data of them: " + strings.Join(data, ", ") + ".",
			Role: theme.Warn,
		})
	}
	if len(anew) > 0 {
		lines = append(lines, widget.Line{
			Text: fmt.Sprintf("Fresh in it: %s; %s.", strings.Join(anew, ", "), noClaims(len(anew))), Role: theme.Text,
		})
	}
	return lines
}

func (p *cloning) asks() tea.Cmd {
	row, key, actions, name := p.row, p.row.Object(), p.world.Actions, p.value(0)
	o := clone.Options{Source: key.Name, FromSnapshot: true, Target: name}
	made := ""
	return Send(Ask{Question: fmt.Sprintf("Make VM %s/%s of snapshot %s?", key.Namespace, name, key.Name), Task: Task{
		Line: p.world.Line(p.world.Program, "clone", quoted(key.Name), quoted(name), "--from-snapshot", "--namespace",
			key.Namespace),
		Do: func(ctx context.Context) (err error) {
			made, err = actions.Clone(ctx, row, o)
			return err
		},
		Then: p.shows(func() (string, string) { return store.Clones, made }, key.Namespace),
	}})
}
