package app

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// key gives a key to what has the keyboard.
func (a *App) key(m tea.KeyPressMsg) tea.Cmd {
	key := m.String()
	a.notice = ""
	if a.grabbed() && a.ask == nil && a.prompt == nil {
		cmd, _ := a.top().(page.Grabbing).Typed(m)
		return cmd
	}
	if key == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case a.ask != nil:
		return a.answer(key, m.Text)
	case a.prompt != nil:
		return a.prompt.key(a, m)
	case len(a.trouble) > 0 && key == "esc":
		a.trouble = a.trouble[1:]
		return nil
	}
	if p, ok := a.top().(page.Typing); ok {
		if cmd, taken := p.Typed(m); taken {
			return cmd
		}
	}
	for _, handle := range []func(string) (tea.Cmd, bool, string){
		a.top().Key,
		func(key string) (tea.Cmd, bool, string) { return a.keys.Handle(a, key) },
	} {
		cmd, known, why := handle(key)
		if why != "" {
			a.notice = capital(why)
		}
		if known {
			return cmd
		}
	}
	return nil
}

// grabbed reports whether all keys are the page's.
func (a *App) grabbed() bool {
	p, ok := a.top().(page.Grabbing)
	return ok && p.Grabs()
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// clicked moves the cursor, sorts, or opens.
func (a *App) clicked(m tea.MouseClickMsg) tea.Cmd {
	if a.ask != nil || a.prompt != nil || m.Button != tea.MouseLeft {
		return nil
	}
	now := a.World.Now()
	twice := a.click.x == m.X && a.click.y == m.Y && now.Sub(a.click.at) < 400*time.Millisecond
	a.click = click{m.X, m.Y, now}
	if p, ok := a.top().(page.Clickable); ok && m.Y >= headerHeight {
		return p.Click(m.X, m.Y-headerHeight, twice)
	}
	return nil
}

func (a *App) wheel(m tea.MouseWheelMsg) tea.Cmd {
	key := "down"
	if m.Button == tea.MouseWheelUp {
		key = "up"
	}
	var cmds []tea.Cmd
	for range 3 {
		cmd, _, _ := a.top().Key(key)
		cmds = append(cmds, cmd)
	}
	return tea.Batch(cmds...)
}

// appKeys are the keys of every page.
func appKeys() keymap.Map[*App] {
	return keymap.Map[*App]{
		{Keys: []string{"/"}, Name: "filter", Help: "show only rows that match: letters, a regular expression, -l " +
			"labels, ! for the opposite", Allowed: func(a *App) string {
			if _, ok := a.top().(page.Filterable); !ok {
				return "there is nothing to filter here"
			}
			return ""
		}, Do: func(a *App) tea.Cmd { return a.askFilter() }},
		{
			Keys: []string{":"}, Name: "command", Help: "every page and action by its name",
			Do: func(a *App) tea.Cmd { return a.askCommand() },
		},
		{Keys: []string{"?"}, Name: "help", Help: "all keys", Do: (*App).showHelp},
		{
			Keys: []string{"esc"}, Name: "back", Help: "back, or take the filter away",
			Do: func(a *App) tea.Cmd { a.back(); return nil },
		},
		{
			Keys: []string{"1"}, Name: "VMs", Help: "the page of VMs", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewMachines(a.World)) },
		},
		{
			Keys: []string{"2"}, Name: "nodes", Help: "the page of nodes", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewNodes(a.World)) },
		},
		{
			Keys: []string{"3"}, Name: "migrations", Help: "the page of migrations", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewMigrations(a.World)) },
		},
		{
			Keys: []string{"4"}, Name: "events", Help: "the page of events", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewEvents(a.World)) },
		},
		{
			Keys: []string{"5"}, Name: "health", Help: "the page of the stack's health", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewHealth(a.World)) },
		},
		{
			Keys: []string{"6"}, Name: "instance types", Help: "the page of instance types and preferences",
			Quiet: true,
			Do:    func(a *App) tea.Cmd { return a.home(page.NewSizings(a.World)) },
		},
		{
			Keys: []string{"7"}, Name: "pools", Help: "the page of pools and replica sets", Quiet: true,
			Do: func(a *App) tea.Cmd { return a.home(page.NewSets(a.World, "")) },
		},
		{
			Keys: []string{"L"}, Name: "log", Help: "what was done, as command lines",
			Do: func(a *App) tea.Cmd { return page.Send(page.Open{Page: a.logPage()}) },
		},
		{
			Keys: []string{"ctrl+z"}, Name: "suspend", Help: "back to the shell; fg comes here again", Quiet: true,
			Allowed: func(a *App) string {
				if a.Suspend == nil {
					return "there is no shell to go back to"
				}
				return ""
			}, Do: func(a *App) tea.Cmd { return a.Suspend },
		},
		{Keys: []string{"q"}, Name: "quit", Help: "leave the dashboard", Do: func(*App) tea.Cmd { return tea.Quit }},
	}
}
