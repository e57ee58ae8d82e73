package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// prompt is the line that filters and commands are typed into.
type prompt struct {
	input textinput.Model
	// typed hears of each change; done of enter. cancelled hears of esc.
	typed, done func(string) tea.Cmd
	cancelled   func()
	err         error
	history     []string
	at          int
}

func (a *App) newPrompt(sign string) *prompt {
	p := &prompt{input: textinput.New()}
	p.input.Prompt = sign
	p.input.SetWidth(max(20, a.width-6))
	p.input.SetVirtualCursor(true)
	styles := p.input.Styles()
	styles.Cursor.Blink = false // a screen where nothing happens is not drawn
	p.input.SetStyles(styles)
	return p
}

func (p *prompt) update(a *App, msg tea.Msg) tea.Cmd {
	before := p.input.Value()
	input, cmd := p.input.Update(msg)
	p.input = input
	if now := p.input.Value(); now != before && p.typed != nil {
		cmd = tea.Batch(cmd, p.typed(now))
	}
	return cmd
}

func (p *prompt) key(a *App, m tea.KeyPressMsg) tea.Cmd {
	switch m.String() {
	case "esc":
		a.prompt = nil
		if p.cancelled != nil {
			p.cancelled()
		}
		return nil
	case "enter":
		a.prompt = nil
		return p.done(p.input.Value())
	case "up", "down":
		if len(p.history) == 0 {
			return nil
		}
		if m.String() == "up" {
			p.at = max(0, p.at-1)
		} else {
			p.at = min(len(p.history), p.at+1)
		}
		value := ""
		if p.at < len(p.history) {
			value = p.history[p.at]
		}
		p.input.SetValue(value)
		p.input.CursorEnd()
		return nil
	}
	return p.update(a, m)
}

// askFilter chooses rows while the filter is typed.
func (a *App) askFilter() tea.Cmd {
	target := a.top().(page.Filterable)
	was := target.Filter()
	p := a.newPrompt("/")
	p.input.SetValue(was.String())
	p.input.CursorEnd()
	p.typed = func(text string) tea.Cmd {
		f, err := filter.Parse(text)
		if p.err = err; err == nil {
			target.SetFilter(f)
		}
		return nil
	}
	p.done = func(text string) tea.Cmd {
		if _, err := filter.Parse(text); err != nil {
			a.notice = capital(err.Error())
			target.SetFilter(was)
		}
		return nil
	}
	p.cancelled = func() { target.SetFilter(was) }
	a.prompt = p
	return p.input.Focus()
}

// askInput takes a line that a page asks for. What is wrong with it stands beside it, and it is not taken.
func (a *App) askInput(m page.Input) tea.Cmd {
	p := a.newPrompt(m.Label + " ")
	p.input.SetWidth(max(8, a.width/6)) // what is wrong stands beside it
	p.input.SetValue(m.Value)
	p.input.CursorEnd()
	p.typed = func(text string) tea.Cmd {
		p.err = m.Check(text)
		return nil
	}
	p.done = func(text string) tea.Cmd {
		if p.err = m.Check(text); p.err != nil {
			a.prompt = p
			return nil
		}
		return m.Done(text)
	}
	p.cancelled = func() { a.notice = "Nothing was done" }
	a.prompt = p
	return p.input.Focus()
}

// command is an entry of the palette.
type command struct {
	name, help string
	// values complete the word after the name; nil takes none.
	values func(context.Context) []string
	do     func(a *App, value string) tea.Cmd
}

func (a *App) commands() []command {
	open := func(name, help string, make func(*page.World) page.Page) command {
		return command{name: name, help: help, do: func(a *App, _ string) tea.Cmd { return a.home(make(a.World)) }}
	}
	all := []command{
		open("vms", "virtual machines", func(w *page.World) page.Page { return page.NewMachines(w) }),
		open("nodes", "nodes", func(w *page.World) page.Page { return page.NewNodes(w) }),
		open("migrations", "moves between nodes", func(w *page.World) page.Page { return page.NewMigrations(w) }),
		open("events", "what happened", func(w *page.World) page.Page { return page.NewEvents(w) }),
		open("health", "what doctor finds", func(w *page.World) page.Page { return page.NewHealth(w) }),
		open("instancetypes", "instance types and preferences",
			func(w *page.World) page.Page { return page.NewSizings(w) }),
		open("pools", "pools", func(w *page.World) page.Page { return page.NewSets(w, store.Pools) }),
		open("replicasets", "replica sets of instances",
			func(w *page.World) page.Page { return page.NewSets(w, store.ReplicaSets) }),
		{
			name: "log", help: "what was done, as command lines",
			do: func(a *App, _ string) tea.Cmd { return page.Send(page.Open{Page: a.logPage()}) },
		},
		{name: "help", help: "all keys", do: func(a *App, _ string) tea.Cmd { return a.showHelp() }},
		{name: "quit", help: "leave the dashboard", do: func(*App, string) tea.Cmd { return tea.Quit }},
	}
	if a.Switch != nil {
		all = append(all,
			command{
				name: "namespace", help: "show one namespace, or all", values: a.Namespaces,
				do: func(a *App, value string) tea.Cmd {
					if value == "all" {
						value = ""
					}
					return a.change(page.Scope{Context: a.World.Context, Namespace: value})
				},
			},
			command{
				name: "context", help: "another cluster of the kubeconfig", values: a.Contexts,
				do: func(a *App, value string) tea.Cmd {
					return a.change(page.Scope{Context: value, Namespace: a.World.Namespace})
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

// named does what the page's key of that name does.
func (a *App) named(name string) tea.Cmd {
	for _, h := range a.top().Hints() {
		if h.Name != name {
			continue
		}
		cmd, _, why := a.top().Key(h.Code)
		if why != "" {
			a.notice = capital(why)
		}
		return cmd
	}
	return nil
}

// change shows another namespace or cluster.
func (a *App) change(s page.Scope) tea.Cmd {
	w, err := a.Switch(s)
	if err != nil {
		a.trouble = append(a.trouble, err.Error())
		return nil
	}
	a.World = w
	return a.home(page.NewMachines(w))
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
	asked := ""
	p.typed = func(text string) tea.Cmd {
		p.err = nil
		name, _, ok := strings.Cut(text, " ")
		if !ok || name == asked {
			return nil
		}
		for _, c := range all {
			if c.name == name && c.values != nil {
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
		if c.name == name {
			found = []command{c}
			break
		}
		if strings.HasPrefix(c.name, name) && (suggested == "" || value != "" || c.name == suggested) {
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
