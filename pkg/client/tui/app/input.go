package app

import (
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// suspend is the key that goes back to the shell.
const suspend = "ctrl+z"

// key gives a key to what has the keyboard.
func (a *App) key(m tea.KeyPressMsg) tea.Cmd {
	if m.String() == "alt+esc" { // two of them at once
		esc := tea.KeyPressMsg{Code: tea.KeyEscape}
		return tea.Batch(a.key(esc), a.key(esc))
	}
	key := m.String()
	said := a.notice
	a.notice = ""
	if a.grabbed() && a.ask == nil && a.prompt == nil {
		cmd, _ := a.top().(page.Grabbing).Typed(m)
		return cmd
	}
	if key == "ctrl+c" {
		return a.quit()
	}
	if key == suspend && a.Suspend != nil { // also out of a question or a form, which is there again afterwards
		return a.Suspend
	}
	if key != "q" {
		a.leaving = false
	}
	switch {
	case a.ask != nil:
		return a.answer(key, m.Text)
	case a.prompt != nil:
		return a.prompt.key(a, m)
	case len(a.trouble) > 0 && key == "esc":
		if said == "" { // else the error was not shown
			a.trouble = a.trouble[:len(a.trouble)-1]
		}
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
			a.notice = page.Capital(why)
		}
		if known {
			return cmd
		}
	}
	a.notice = a.unbound(key)
	return nil
}

// unbound returns the notice that a key does nothing on this page.
func (a *App) unbound(key string) string {
	shown := a.theme().Keys(keymap.Spell(key))
	if name := page.MachineKey(key); name != "" {
		return fmt.Sprintf("%s (%s) does nothing on this page; ? shows its keys", shown, name)
	}
	return shown + " does nothing on this page; ? shows its keys"
}

// grabbed reports whether all keys are the page's.
func (a *App) grabbed() bool {
	p, ok := a.top().(page.Grabbing)
	return ok && p.Grabs()
}

// clicked moves the cursor, sorts, or opens.
func (a *App) clicked(m tea.MouseClickMsg) tea.Cmd {
	if a.ask != nil || a.prompt != nil || m.Button != tea.MouseLeft {
		return nil
	}
	now := a.World.Now()
	twice := a.click.x == m.X && a.click.y == m.Y && now.Sub(a.click.at) < 400*time.Millisecond
	a.click = click{m.X, m.Y, now}
	header := len(a.header())
	if m.Y == 1 && header > 1 {
		return a.clickedBar(m.X)
	}
	if p, ok := a.top().(page.Clickable); ok && m.Y >= header {
		return p.Click(m.X, m.Y-header, twice)
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

// appKeys returns the keys of every page.
func appKeys() keymap.Map[*App] {
	keys := keymap.Map[*App]{
		{
			Keys: []string{"/"}, Name: "find", Help: "in tables, show only rows that match: words, !word for one " +
				"that is not there, \"words in quotes\", ~ for letters in this order, a regular expression, " +
				"-l labels, ! and a space for the opposite; in texts, search",
			Allowed: func(a *App) string {
				if a.filterable() == nil && a.searchable() == nil {
					return "there is nothing to search here"
				}
				return ""
			}, Do: (*App).find,
		},
		{
			Keys: []string{"n"}, Help: "the next match of the search or the filter", Quiet: true,
			Allowed: (*App).unsearched,
			Do:      func(a *App) tea.Cmd { a.notice = a.matching().NextMatch(1); return nil },
		},
		{
			Keys: []string{"N"}, Help: "the match before", Quiet: true, Allowed: (*App).unsearched,
			Do: func(a *App) tea.Cmd { a.notice = a.matching().NextMatch(-1); return nil },
		},
		{
			Keys: []string{":"}, Name: "command", Help: "every page and action by its name",
			Do: func(a *App) tea.Cmd { return a.askCommand() },
		},
		{Keys: []string{"?"}, Name: "help", Help: "all keys", Do: (*App).showHelp},
		{
			Keys: []string{"esc"}, Name: "back", Help: "end the search, take the filter away, or go back",
			Do: func(a *App) tea.Cmd { a.back(); return nil },
		},
		{Keys: []string{"q"}, Name: "quit", Help: "leave the dashboard", Do: (*App).quit},
		{
			Keys: []string{"0"}, Help: "all namespaces", Quiet: true, Allowed: func(a *App) string {
				if a.World.Namespace == "" {
					return "all namespaces are shown"
				}
				return a.cannotSwitch()
			}, Do: func(a *App) tea.Cmd { return a.change(page.Scope{Context: a.World.Context}) },
		},
	}
	for _, p := range places() {
		keys = append(keys, keymap.Binding[*App]{
			Keys: []string{p.key}, Name: p.name, Help: p.help, Quiet: true,
			Do: func(a *App) tea.Cmd { return a.visit(&p) },
		})
	}
	return append(keys, keymap.Binding[*App]{
		Keys: []string{"L"}, Name: "log", Help: "what was done, as command lines",
		Do: func(a *App) tea.Cmd { return page.Send(page.Open{Page: a.logPage()}) },
	}, keymap.Binding[*App]{
		Keys: []string{suspend}, Name: "suspend", Help: "back to the shell; fg comes here again", Quiet: true,
		Allowed: func(a *App) string {
			if a.Suspend == nil {
				return "there is no shell to go back to"
			}
			return ""
		}, Do: func(*App) tea.Cmd { return nil }, // key has it where there is one
	})
}

// cannotSwitch returns why another namespace cannot be shown, empty when it can.
func (a *App) cannotSwitch() string {
	if a.Switch == nil {
		return "this dashboard shows one namespace"
	}
	return ""
}

func (a *App) filterable() page.Filterable {
	p, _ := a.top().(page.Filterable)
	return p
}

func (a *App) searchable() page.Searchable {
	p, _ := a.top().(page.Searchable)
	return p
}

// unsearched returns why there is no next match, empty when there is a search.
func (a *App) unsearched() string {
	if p := a.matching(); p == nil || p.Searched() == "" {
		return "nothing is searched for; / searches"
	}
	return ""
}

func (a *App) matching() page.Matching {
	p, _ := a.top().(page.Matching)
	return p
}
