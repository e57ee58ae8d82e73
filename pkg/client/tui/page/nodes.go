package page

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/report/host"
)

// Nodes is the page of the cluster's nodes.
type Nodes struct {
	rows[*store.Node]
	// guests is how many run on each.
	guests map[string]int
	// leaving is how many of those are to leave, or are on their way.
	leaving map[string]int
}

// NewNodes makes the page.
func NewNodes(w *World) *Nodes {
	p := &Nodes{}
	p.rows = rows[*store.Node]{
		world: w, title: "Nodes", what: "nodes", read: p.read,
		state: func() store.State { return w.Nodes.State() },
	}
	p.table = widget.Table[*store.Node]{
		Columns: p.columns(),
		Key:     func(n *store.Node) store.Key { return store.Key{Name: n.Name} },
		Labels:  func(n *store.Node) map[string]string { return n.Labels },
		Now:     w.Now, Theme: w.Theme,
	}
	type bound = *rows[*store.Node]
	p.bind(keymap.Map[bound]{
		{
			Keys: []string{"enter"}, Name: "its VMs", Help: "the machines that run there", Allowed: bound.none,
			Do: p.open(func(n *store.Node) Page { return NewGuests(w, n.Name) }),
		},
		{
			Keys: []string{"O"}, Name: "cordon", Help: "keep new guests away, or let them come again",
			Allowed: func(bound) string {
				if w.ReadOnly {
					return ReadOnly
				}
				if why := p.none(); why != "" {
					return why
				}
				return w.Actions.ForbiddenTo(cmp.Or(w.Namespace, w.Home, metav1.NamespaceDefault), "patch", "nodes")
			}, Do: func(bound) tea.Cmd { return p.cordon() },
		},
		{
			Keys: []string{"E"}, Name: "evacuate", Help: "what emptying the node would do to each guest, and do it",
			Allowed: bound.none, Do: func(bound) tea.Cmd {
				return Send(Open{NewEvacuation(w, p.current().Name)})
			},
		},
	}...)
	p.Refresh()
	return p
}

// columns returns the table's columns.
func (p *Nodes) columns() []widget.Column[*store.Node] {
	return []widget.Column[*store.Node]{
		{
			Title: "NAME", Max: 63, First: true,
			Cell: func(n *store.Node, _ time.Time) widget.Cell { return widget.Cell{Text: n.Name} },
		},
		{
			Title: "STATUS", Max: 40,
			Cell: func(n *store.Node, now time.Time) widget.Cell {
				return nodeStatus(p.world.Theme, n, p.leaving[n.Name], p.silent(n, now))
			},
		},
		{Title: p.counted(), Right: true, Volatile: true, Cell: func(n *store.Node, _ time.Time) widget.Cell {
			return widget.Cell{Text: fmt.Sprint(p.guests[n.Name])}
		}, Compare: func(a, b *store.Node) int { return cmp.Compare(p.guests[b.Name], p.guests[a.Name]) }},
		{
			Title: "CPU", Right: true, Priority: 2,
			Cell:    func(n *store.Node, _ time.Time) widget.Cell { return widget.Cell{Text: n.CPU.String()} },
			Compare: func(a, b *store.Node) int { return b.CPU.Cmp(a.CPU) },
		},
		{Title: "MEMORY", Right: true, Priority: 2, Cell: func(n *store.Node, _ time.Time) widget.Cell {
			return widget.Cell{Text: widget.Bytes(float64(n.Memory.Value()))}
		}, Compare: func(a, b *store.Node) int { return b.Memory.Cmp(a.Memory) }},
		{
			Title: "KVM", Right: true, Priority: 5,
			Cell: func(n *store.Node, _ time.Time) widget.Cell { return widget.Cell{Text: fmt.Sprint(n.Devices)} },
		},
		{
			Title: "HEARTBEAT", Right: true, Priority: 3, Volatile: true,
			Cell: func(n *store.Node, now time.Time) widget.Cell {
				return widget.Cell{Text: age(n.Heartbeat, now), Role: heartbeatRole(p.silent(n, now))}
			}, Compare: func(a, b *store.Node) int { return a.Heartbeat.Compare(b.Heartbeat) },
		},
		{
			Title: "AGE", Right: true, Priority: 4, Volatile: true,
			Cell: func(n *store.Node, now time.Time) widget.Cell {
				return widget.Cell{Text: age(n.Created, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Node) int { return b.Created.Compare(a.Created) },
		},
		{Title: "ROLES", Max: 24, Priority: 6, Cell: func(n *store.Node, _ time.Time) widget.Cell {
			return widget.Cell{Text: strings.Join(n.Roles, ",")}
		}},
		{
			Title: "KUBELET", Max: 20, Priority: 7,
			Cell: func(n *store.Node, _ time.Time) widget.Cell { return widget.Cell{Text: n.Kubelet} },
		},
		{Title: "TAINTS", Priority: 8, Flex: true, Cell: func(n *store.Node, _ time.Time) widget.Cell {
			return widget.Cell{Text: strings.Join(n.Taints, ",")}
		}},
	}
}

// counted returns the title of the number of VMs: those of other namespaces than the one that is shown are not known.
func (p *Nodes) counted() string {
	if ns := p.world.Namespace; ns != "" {
		return "VMS IN " + ns
	}
	return "VMS"
}

// silent reports whether a node's virt-handler gave no heartbeat for too long. The time in which the API server did not
// answer does not count: none could come, and the first comes up to a minute after it is back.
func (p *Nodes) silent(n *store.Node, now time.Time) bool {
	if state := p.world.Nodes.State(); state.Stale() {
		now = state.Since
	}
	return n.Heartbeat.IsZero() || host.Late(n.Heartbeat.Add(p.world.Pulse.Away(n.Heartbeat, now)), now)
}

func nodeStatus(t *theme.Theme, n *store.Node, leaving int, silent bool) widget.Cell {
	var words []string
	role := theme.Good
	worse := func(r theme.Role, word string) {
		words = append(words, word)
		if role != theme.Bad {
			role = r
		}
	}
	if !n.Ready {
		worse(theme.Bad, "NotReady")
	} else {
		words = append(words, "Ready")
	}
	if n.Cordoned {
		worse(theme.Warn, "SchedulingDisabled")
	}
	if leaving > 0 {
		worse(theme.Busy, fmt.Sprintf("%d leaving", leaving))
	}
	if !n.Schedulable {
		worse(theme.Bad, "no guests")
	} else if silent {
		worse(theme.Bad, "virt-handler silent")
	}
	return state(t, strings.Join(words, ","), role)
}

func heartbeatRole(silent bool) theme.Role {
	if silent {
		return theme.Bad
	}
	return theme.Dim
}

func (p *Nodes) cordon() tea.Cmd {
	n := p.current()
	verb, on := "cordon", !n.Cordoned
	question := "Cordon node " + n.Name + "? It is given no new guests; those that run there stay."
	if !on {
		verb, question = "uncordon", "Uncordon node "+n.Name+"? It may be given new guests again."
	}
	actions := p.world.Actions
	return Send(Ask{Question: question, Task: Task{
		Line: p.world.Line("kubectl", verb, n.Name),
		Do:   func(ctx context.Context) error { return actions.Cordon(ctx, n.Name, on) },
	}})
}

// read counts the guests of each node besides.
func (p *Nodes) read() []*store.Node {
	p.guests, p.leaving = map[string]int{}, map[string]int{}
	for _, m := range p.world.Machines.Rows() {
		if m.Alive() && m.Node != "" {
			p.guests[m.Node]++
			if m.Evacuating || m.Migrating {
				p.leaving[m.Node]++
			}
		}
	}
	return p.world.Nodes.Rows()
}
