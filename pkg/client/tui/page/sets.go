package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Sets is the page of pools and replica sets.
type Sets struct {
	rows[*store.Set]
	// lacking are the machines that are not ready of sets that have too few, by how they are.
	lacking map[types.UID]map[string]int
}

// NewSets makes the page of pools or of replica sets, or with "" of both. What it shows is followed from then on.
func NewSets(w *World, resource string) *Sets {
	followSets(w)
	p := &Sets{}
	title, what, one := "Pools and replica sets", "pools or replica sets", "a pool or replica set"
	switch resource {
	case store.Pools:
		title, what, one = "Pools", "pools", ""
	case store.ReplicaSets:
		title, what, one = "Replica sets", "replica sets", ""
	}
	p.rows = rows[*store.Set]{
		world: w, title: title, what: what, one: one, advice: "see docs/sets.md for one to apply with kubectl",
		state: func() store.State { return setsState(w) },
		read: func() []*store.Set {
			all := slices.DeleteFunc(setRows(w),
				func(s *store.Set) bool { return resource != "" && s.Resource != resource })
			p.lacking = lacking(w, all)
			return all
		},
	}
	p.table = widget.Table[*store.Set]{
		Columns: p.columns(), Key: (*store.Set).Key, Labels: func(s *store.Set) map[string]string { return s.Labels },
		Now: w.Now, Theme: w.Theme,
	}
	type bound = *rows[*store.Set]
	keys := keymap.Map[bound]{{
		Keys: []string{"enter"}, Name: "details", Help: "everything about the set",
		Allowed: bound.none, Do: p.open(func(s *store.Set) Page { return NewSet(w, s.Key()) }),
	}}
	p.bind(append(keys, keymap.Of(setBindings(), func(p bound) group { return group{w, p.current()} })...)...)
	p.Refresh()
	return p
}

func followSets(w *World) {
	if w.FollowSets != nil {
		w.FollowSets()
	}
}

func setsState(w *World) store.State {
	var all []store.State
	for _, t := range w.Sets {
		all = append(all, t.State())
	}
	return store.Worst(all...)
}

func setRows(w *World) []*store.Set {
	var all []*store.Set
	for _, t := range w.Sets {
		all = append(all, t.Rows()...)
	}
	return all
}

func (p *Sets) columns() []widget.Column[*store.Set] {
	type column = widget.Column[*store.Set]
	number := func(title string, of func(*store.Set) int32, role func(*store.Set) theme.Role) column {
		return column{Title: title, Right: true, Cell: func(s *store.Set, _ time.Time) widget.Cell {
			return widget.Cell{Text: fmt.Sprint(of(s)), Role: role(s)}
		}, Compare: func(a, b *store.Set) int { return cmp.Compare(of(a), of(b)) }}
	}
	plain := func(*store.Set) theme.Role { return theme.Text }
	columns := []column{
		{
			Title: "NAME", Max: 63, First: true,
			Cell:    func(s *store.Set, _ time.Time) widget.Cell { return widget.Cell{Text: s.Name} },
			Compare: func(a, b *store.Set) int { return strings.Compare(a.Name, b.Name) },
		},
		{
			Title: "KIND", Priority: 1,
			Cell: func(s *store.Set, _ time.Time) widget.Cell { return widget.Cell{Text: s.Short()} },
		},
		number("DESIRED", func(s *store.Set) int32 { return s.Desired }, plain),
		number("CURRENT", func(s *store.Set) int32 { return s.Current }, plain),
		number("READY", func(s *store.Set) int32 { return s.Ready }, setRole),
		{Title: "AGE", Right: true, Priority: 3, Volatile: true, Cell: func(s *store.Set, now time.Time) widget.Cell {
			return widget.Cell{Text: age(s.Created, now), Role: theme.Dim}
		}, Compare: func(a, b *store.Set) int { return b.Created.Compare(a.Created) }},
		{Title: "WHY", Priority: 2, Flex: true, Cell: func(s *store.Set, _ time.Time) widget.Cell {
			return widget.Cell{Text: shortOf(s, p.lacking[s.UID]), Role: setRole(s)}
		}},
	}
	if p.world.Namespace == "" {
		columns = append([]column{{
			Title: "NAMESPACE", Max: 24, Priority: 2,
			Cell:    func(s *store.Set, _ time.Time) widget.Cell { return widget.Cell{Text: s.Namespace} },
			Compare: func(a, b *store.Set) int { return strings.Compare(a.Namespace, b.Namespace) },
		}}, columns...)
	}
	return columns
}

// setRole returns the colour of how many machines are ready.
func setRole(s *store.Set) theme.Role {
	switch {
	case s.Failure != "":
		return theme.Bad
	case s.Deleting || s.Paused:
		return theme.Warn
	case s.Ready != s.Desired || s.Current != s.Desired:
		return theme.Busy
	}
	return theme.Good
}

// lacking counts the machines of the sets that have too few ready ones, by how those that are not ready are.
func lacking(w *World, all []*store.Set) map[types.UID]map[string]int {
	out := map[types.UID]map[string]int{}
	for _, s := range all {
		if s.Ready < s.Desired && s.UID != "" {
			out[s.UID] = map[string]int{}
		}
	}
	if len(out) == 0 {
		return nil
	}
	for _, m := range w.Machines.Rows() {
		if of := out[m.Owner]; of != nil && !m.Ready {
			of[cmp.Or(m.Status, "Unknown")]++
		}
	}
	return out
}

// shortOf returns why a set has fewer machines than it asks for, as far as the rows show; the key w asks the server.
func shortOf(s *store.Set, states map[string]int) string {
	var out []string
	if s.Deleting {
		out = append(out, "deleting")
	}
	if s.Paused {
		out = append(out, "paused")
	}
	if s.Failure != "" {
		out = append(out, s.Failure)
	}
	for _, state := range slices.SortedFunc(maps.Keys(states), func(a, b string) int {
		return cmp.Or(cmp.Compare(states[b], states[a]), strings.Compare(a, b))
	}) {
		if state == "Running" {
			out = append(out, fmt.Sprintf("%d Running, not ready", states[state]))
		} else {
			out = append(out, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	switch {
	case s.Current < s.Desired:
		out = append(out, fmt.Sprintf("%d to be made", s.Desired-s.Current))
	case s.Current > s.Desired && s.KeepsExcess != "":
		out = append(out, fmt.Sprintf("%d too many, which %s scale-in keeps", s.Current-s.Desired, s.KeepsExcess))
	case s.Current > s.Desired:
		out = append(out, fmt.Sprintf("%d to go", s.Current-s.Desired))
	}
	return strings.Join(out, ", ")
}

// NewMembers returns the page of a set's machines.
func NewMembers(w *World, s *store.Set) *Machines {
	return newMachines(w, "VMs of "+s.Short()+"/"+s.Name, func() []*store.Machine { return members(w, s) })
}

func members(w *World, s *store.Set) []*store.Machine {
	return slices.DeleteFunc(w.Machines.Rows(), func(m *store.Machine) bool { return s.UID == "" || m.Owner != s.UID })
}

// group is a set that keys work on; there may be none.
type group struct {
	world *World
	set   *store.Set
}

// setBindings returns the keys that do something to a set, wherever that is shown.
func setBindings() keymap.Map[group] {
	some := func(g group) string {
		if g.set == nil {
			return "there is no set here"
		}
		return ""
	}
	change := func(verb, subresource string) func(group) string {
		return func(g group) string {
			switch {
			case g.set == nil:
				return some(g)
			case g.world.ReadOnly:
				return ReadOnly
			case g.set.Deleting:
				return "it is being deleted"
			}
			return g.world.Actions.ForbiddenTo(g.set.Namespace, verb, g.set.Resource+subresource)
		}
	}
	return keymap.Map[group]{
		{
			Keys: []string{"i"}, Name: "machines", Help: "the machines of the set", Allowed: some,
			Do: func(g group) tea.Cmd { return Send(Open{NewMembers(g.world, g.set)}) },
		},
		{
			Keys: []string{"="}, Name: "scale", Help: "change how many machines there are to be",
			Allowed: change("patch", "/scale"), Do: group.askScale,
		},
		{
			Keys: []string{"w"}, Name: "why", Help: "why there are fewer ready machines than there are to be",
			Allowed: some, Do: func(g group) tea.Cmd { return Send(Open{newSetWhy(g.world, g.set)}) },
		},
		{
			Keys: []string{"y"}, Name: "YAML", Help: "the object as the server has it", Allowed: some,
			Do: func(g group) tea.Cmd {
				return Send(Open{newYAML(g.world, g.set.Resource, g.key())})
			},
		},
		{
			Keys: []string{"ctrl+d"}, Name: "delete", Help: "delete the set and its machines",
			Allowed: change("delete", ""), Do: group.askDelete,
		},
	}
}

func newSetWhy(w *World, s *store.Set) *Text {
	return NewText(w, "why "+s.Short()+"/"+s.Name, func(ctx context.Context) ([]widget.Line, error) {
		report, err := w.Actions.WhySet(ctx, s)
		if err != nil {
			return nil, err
		}
		return whyLines(report, w.Program), nil
	})
}

func (g group) key() store.Key { return store.Key{Namespace: g.set.Namespace, Name: g.set.Name} }

// askScale asks for the number, and whether machines may go where there would be fewer.
func (g group) askScale() tea.Cmd {
	s := g.set
	return Send(Input{
		Label: fmt.Sprintf("How many machines is %s/%s to have?", s.Short(), s.Name), Value: fmt.Sprint(s.Desired),
		Check: func(text string) error {
			_, err := replicas(text)
			return err
		},
		Done: func(text string) tea.Cmd {
			n, err := replicas(text)
			switch {
			case err != nil:
				return Send(Notice{Text: Capital(err.Error())})
			case n == s.Desired:
				return Send(Notice{Text: "It asks for " + machines(n) + " already"})
			}
			return g.scale(n)
		},
	})
}

// replicas reads a number of machines.
func replicas(text string) (int32, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 0 {
		return 0, errors.New("not a number")
	}
	return int32(n), nil
}

func (g group) scale(n int32) tea.Cmd {
	s, actions := g.set, g.world.Actions
	task := Task{
		Line: g.world.Line(fmt.Sprintf("%s scale %s/%s --replicas %d --current-replicas %d --namespace %s",
			g.world.Program, s.Short(), s.Name, n, s.Desired, s.Namespace)),
		Do: func(ctx context.Context) error { return actions.Scale(ctx, s, n) },
	}
	ask := Ask{Question: fmt.Sprintf("Scale %s %s from %d to %d?", s.Short(), g.key(), s.Desired, n), Task: task}
	going := s.Current - n
	switch {
	case going > 0 && s.KeepsExcess != "":
		ask.Question += fmt.Sprintf(" Its scaleInStrategy is %s: it deletes no VM; delete those that are too many "+
			"with ctrl-d.", s.KeepsExcess)
	case going > 0:
		ask.Question += " " + Capital(machines(going)) + " would go."
		if going > manyTyped {
			ask.Typed = fmt.Sprint(going)
		}
	}
	return Send(ask)
}

func machines(n int32) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}

func (g group) askDelete() tea.Cmd {
	s, actions := g.set, g.world.Actions
	question := fmt.Sprintf("Delete %s %s?", s.Short(), g.key())
	if n := len(members(g.world, s)); n > 0 {
		question = fmt.Sprintf("Delete %s %s with its %s?", s.Short(), g.key(), machines(int32(min(n, 1<<30))))
	}
	return Send(Ask{Question: question, Typed: s.Name, Task: Task{
		Line: g.world.Line("kubectl delete", s.Short(), s.Name, "--namespace", s.Namespace),
		Do:   func(ctx context.Context) error { return actions.DeleteSet(ctx, s) },
	}})
}
