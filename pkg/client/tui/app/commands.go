package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// command is an entry of the palette.
type command struct {
	name, help string
	// alias is a shorter name.
	alias string
	// values complete the word after the name; nil takes none.
	values func(context.Context) []string
	do     func(a *App, value string) tea.Cmd
}

// called reports whether a name is the command's, whatever its case.
func (c *command) called(name string) bool {
	return strings.EqualFold(c.name, name) || c.alias != "" && strings.EqualFold(c.alias, name)
}

// begins reports whether a name begins so, whatever its case.
func begins(name, text string) bool {
	return len(name) >= len(text) && strings.EqualFold(name[:len(text)], text)
}

func (a *App) commands() []command {
	open := func(name, help, place string, make func(*page.World) page.Page) command {
		return command{name: name, help: help, do: func(a *App, _ string) tea.Cmd {
			cmd := a.home(make)
			a.place = place
			return cmd
		}}
	}
	all := []command{
		open("vms", "virtual machines", "1", func(w *page.World) page.Page { return page.NewMachines(w) }),
		open("nodes", "nodes", "2", func(w *page.World) page.Page { return page.NewNodes(w) }),
		open("migrations", "moves between nodes", "3", func(w *page.World) page.Page { return page.NewMigrations(w) }),
		open("events", "what happened", "4", func(w *page.World) page.Page { return page.NewEvents(w) }),
		open("health", "what doctor finds", "5", func(w *page.World) page.Page { return page.NewHealth(w) }),
		open("instancetypes", "instance types and preferences", "6",
			func(w *page.World) page.Page { return page.NewSizings(w) }),
		open("pools", "pools", "7", func(w *page.World) page.Page { return page.NewSets(w, store.Pools) }),
		open("replicasets", "replica sets of instances", "7",
			func(w *page.World) page.Page { return page.NewSets(w, store.ReplicaSets) }),
		open("snapshots", "snapshots, with the restores and clones of each", "8",
			func(w *page.World) page.Page { return page.NewSnapshots(w) }),
		open("images", "cloud images, those that are there and those that can be pulled", "9",
			func(w *page.World) page.Page { return page.NewImages(w) }),
		{
			name: "transfers", help: "pulls and exports of this dashboard",
			do: func(a *App, _ string) tea.Cmd {
				if _, there := a.top().(*page.TransferList); there {
					return nil
				}
				return page.Send(page.Open{Page: page.NewTransferList(a.World)})
			},
		},
		{
			name: "log", help: "what was done, as command lines",
			do: func(a *App, _ string) tea.Cmd { return page.Send(page.Open{Page: a.logPage()}) },
		},
		{
			name: "undo", help: "take the last start, stop, pause, unpause, rename or kept restore back",
			do: func(a *App, _ string) tea.Cmd { return a.undo() },
		},
		{name: "help", help: "all keys", do: func(a *App, _ string) tea.Cmd { return a.showHelp() }},
		{name: "quit", help: "leave the dashboard", do: func(a *App, _ string) tea.Cmd { return a.quit() }},
	}
	if a.Switch != nil {
		all = append(all,
			command{
				name: "namespace", alias: "ns", help: "show one namespace, or all", values: a.Namespaces,
				do: func(a *App, value string) tea.Cmd {
					if value == "all" {
						return a.change(page.Scope{Context: a.World.Context})
					}
					return a.lookFor(value)
				},
			},
			command{
				name: "context", alias: "ctx", help: "another cluster of the kubeconfig", values: a.Contexts,
				do: func(a *App, value string) tea.Cmd {
					if all := a.contexts(); len(all) > 0 && !slices.Contains(all, value) {
						a.notice = fmt.Sprintf("There is no context %q; :ctx and a space shows those that there are",
							value)
						return nil
					}
					return a.change(page.Scope{Context: value, Namespace: a.namespaceIn(value)})
				},
			},
		)
	}
	for _, h := range a.top().Hints() {
		if h.Name == "" || strings.Contains(h.Name, " ") ||
			slices.ContainsFunc(all, func(c command) bool { return c.name == h.Name }) {
			continue
		}
		key := h.Name
		all = append(all,
			command{name: h.Name, help: h.Help, do: func(a *App, _ string) tea.Cmd { return a.named(key) }})
	}
	return all
}

// namespaceIn returns the namespace to show of another context: the context's own, or all while all are shown.
func (a *App) namespaceIn(name string) string {
	if a.World.Namespace == "" || a.NamespaceOf == nil {
		return a.World.Namespace
	}
	return a.NamespaceOf(name)
}

// contexts returns the contexts of the kubeconfig, without asking a cluster.
func (a *App) contexts() []string {
	if a.Contexts == nil {
		return nil
	}
	return a.Contexts(context.Background())
}

// named does what the page's key of that name does.
func (a *App) named(name string) tea.Cmd {
	for _, h := range a.top().Hints() {
		if h.Name != name {
			continue
		}
		cmd, _, why := a.top().Key(h.Code)
		if why != "" {
			a.notice = page.Capital(why)
		}
		return cmd
	}
	return nil
}

// patience is how long the namespaces may take to be listed before one is switched to unseen.
const patience = 3 * time.Second

// lookFor switches to a namespace once it is known to be there, or not known whether it is.
func (a *App) lookFor(namespace string) tea.Cmd {
	w := a.World
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return namespaceSought{w, namespace, a.Namespaces(ctx)}
	}
}

// namespaceSought is a namespace that was to be shown instead of a world, and those that there are.
type namespaceSought struct {
	world     *page.World
	namespace string
	names     []string
}

// sought shows a namespace that is there. Who may not list them has no other name than "all", and is believed.
func (a *App) sought(m namespaceSought) tea.Cmd {
	if m.world != a.World {
		return nil // another was chosen meanwhile
	}
	listed := slices.ContainsFunc(m.names, func(name string) bool { return name != "all" })
	if listed && !slices.Contains(m.names, m.namespace) {
		a.notice = fmt.Sprintf("There is no namespace %q; :ns and a space shows those that there are", m.namespace)
		return nil
	}
	return a.change(page.Scope{Context: a.World.Context, Namespace: m.namespace})
}

// change shows another namespace or cluster, on the page of the bar that is shown.
func (a *App) change(s page.Scope) tea.Cmd {
	w, err := a.Switch(s)
	if err != nil {
		a.fail(a.World.Say(err))
		return nil
	}
	left := a.World
	a.World, a.totals = w, page.Summarize(w)
	all := places()
	cmd := a.visit(&all[max(slices.IndexFunc(all, func(p place) bool { return p.key == a.place }), 0)])
	w.TakeDraft(left)
	return cmd
}

// completions are the values of a command, read when its name is there.
type completions struct {
	prompt *prompt
	name   string
	values []string
}

// complete offers values, if they are still asked for.
func (a *App) complete(c completions) {
	if a.prompt != c.prompt {
		return
	}
	var all []string
	for _, v := range c.values {
		all = append(all, c.name+" "+v)
	}
	c.prompt.values = all
	c.prompt.input.SetSuggestions(all)
}

// askCommand takes a command's name, completed while it is typed.
func (a *App) askCommand() tea.Cmd {
	p := a.newPrompt(":")
	p.history = a.History
	p.at = len(a.History)
	p.input.ShowSuggestions = true
	all := a.commands()
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	p.input.SetSuggestions(names)
	p.candidates = func(text string) []candidate {
		var out []candidate
		if name, value, ok := strings.Cut(text, " "); ok {
			for _, v := range p.values {
				if v, ok := strings.CutPrefix(v, name+" "); ok && strings.HasPrefix(v, strings.TrimSpace(value)) {
					out = append(out, candidate{name: v})
				}
			}
			return out
		}
		for _, c := range all {
			if begins(c.name, text) || c.alias != "" && begins(c.alias, text) {
				name := c.name
				if c.alias != "" {
					name += ", " + c.alias
				}
				out = append(out, candidate{name, c.help})
			}
		}
		return out
	}
	asked := ""
	p.typed = func(text string) tea.Cmd {
		p.err = nil
		name, _, ok := strings.Cut(text, " ")
		if !ok || name == asked {
			return nil
		}
		for _, c := range all {
			if c.called(name) && c.values != nil {
				asked = name
				return func() tea.Msg { return completions{p, name, c.values(context.Background())} }
			}
		}
		return nil
	}
	p.done = func(text string) tea.Cmd { return a.command(all, strings.TrimSpace(text), p.input.CurrentSuggestion()) }
	a.prompt = p
	return p.input.Focus()
}

// command does what was typed: a name, the beginning of only one, or the one that is suggested.
func (a *App) command(all []command, text, suggested string) tea.Cmd {
	if text == "" {
		return nil
	}
	name, value, _ := strings.Cut(text, " ")
	var found []command
	for _, c := range all {
		if c.called(name) {
			found = []command{c}
			break
		}
		if begins(c.name, name) && (suggested == "" || value != "" || c.name == suggested) {
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 0:
		a.notice = fmt.Sprintf("There is no command %q; ? shows the keys", name)
		return nil
	case len(found) > 1:
		a.notice = fmt.Sprintf("%q may be %s or %s", name, found[0].name, found[1].name)
		return nil
	case found[0].values == nil && value != "":
		a.notice = fmt.Sprintf("%q takes no value", found[0].name)
		return nil
	case found[0].values != nil && strings.TrimSpace(value) == "":
		a.notice = fmt.Sprintf("%q takes a value: %s", found[0].name, found[0].help)
		return nil
	}
	a.History = append(slices.DeleteFunc(a.History, func(old string) bool { return old == text }), text)
	return found[0].do(a, strings.TrimSpace(value))
}
