// Package app is the dashboard's root: a stack of pages with a header above and keys below, the prompt for filters and
// commands, questions, and the log of what was done. Rows reach the pages through pkg/client/store; what pages ask for
// (a task, the terminal for a console) is done here.
package app

import (
	"context"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// Changed says that rows are to be read anew.
type Changed struct{}

// App is the dashboard.
type App struct {
	World *page.World
	// Self is the program that pages hand the terminal to.
	Self string
	// Command makes the programs that the terminal is handed to.
	Command func(name string, args ...string) *exec.Cmd
	// Suspend stops the program until its shell has it go on; nil where there is no such shell.
	Suspend tea.Cmd
	// Editor is the command line of the user's editor, to which a file is added.
	Editor []string
	// Switch changes the scope to another namespace or context; the world that it returns replaces this one. nil keeps
	// it.
	Switch func(page.Scope) (*page.World, error)
	// Namespaces and Contexts are what can be switched to, for completion.
	Namespaces, Contexts func(context.Context) []string
	// NamespaceOf is the namespace of a context; nil keeps the one that is shown.
	NamespaceOf func(name string) string

	// History are the commands that were typed, the newest last.
	History []string

	stack         []page.Page
	width, height int
	prompt        *prompt
	ask           *question
	log           []entry
	trouble       []string // errors that were not yet read
	notice        string
	// kept is what Kept returns.
	kept    string
	reading bool // a reading of what guests use is on its way
	focused bool
	click   click
	keys    keymap.Map[*App]
	editing func(page.EditText) tea.Cmd
	copying func(string) tea.Cmd
	totals  page.Summary // of the rows, when they were read last
	place   string       // the key of the page in the bar that was gone to
	leaving bool         // the dashboard ends when what was asked of the cluster has been answered
}

// entry is a line of the command log.
type entry struct {
	at    time.Time
	line  string
	brief string // the line, or what is said instead where that is long
	ended bool
	err   error
	// progress says how far it is; nil says nothing.
	progress func() string
}

type (
	usageRead struct {
		world *page.World
		list  stats.List
		err   error
	}
	taskEnded struct {
		index int
		err   error
		then  func(error) tea.Msg
	}
	runEnded struct {
		index int
		err   error
	}
	click struct {
		x, y int
		at   time.Time
	}
)

// New makes the dashboard, showing its machines.
func New(w *page.World) *App {
	a := &App{World: w, Command: exec.Command, focused: true, width: 80, height: 24}
	a.keys, a.editing, a.copying = appKeys(), a.edit, func(text string) tea.Cmd { return tea.SetClipboard(text) }
	a.stack, a.place, a.totals = []page.Page{page.NewMachines(w)}, "1", page.Summarize(w)
	return a
}

// Init begins the clocks.
func (a *App) Init() tea.Cmd { return tea.Batch(a.tick(), a.read()) }

func (a *App) tick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return page.Tick(t) })
}

// read asks what guests use, if a page shows it and no answer is on its way.
func (a *App) read() tea.Cmd {
	if a.reading || !a.focused {
		return nil
	}
	a.reading = true
	w := a.World
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		list, err := w.Actions.Stats(ctx, w.Namespace)
		return usageRead{w, list, err}
	}
}

func (a *App) top() page.Page { return a.stack[len(a.stack)-1] }

// Update hears of the terminal, of rows and readings, of what pages want and of what has ended; the rest is the pages'.
func (a *App) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	for _, hear := range []func(tea.Msg) (tea.Cmd, bool){a.terminal, a.news, a.navigation, a.wish} {
		if cmd, heard := hear(msg); heard {
			return a, cmd
		}
	}
	return a, a.pass(msg)
}

// terminal hears of keys, the mouse and the window.
func (a *App) terminal(msg tea.Msg) (cmd tea.Cmd, heard bool) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = m.Width, m.Height
	case tea.FocusMsg:
		a.focused = true
		return tea.Batch(a.read(), a.refresh()), true
	case tea.BlurMsg:
		a.focused = false
	case tea.KeyPressMsg:
		return a.key(m), true
	case tea.PasteMsg:
		return a.paste(m), true
	case tea.MouseClickMsg:
		return a.clicked(m), true
	case tea.MouseWheelMsg:
		return a.wheel(m), true
	default:
		return nil, false
	}
	return nil, true
}

// paste gives a text to what is typed in.
func (a *App) paste(m tea.PasteMsg) tea.Cmd {
	switch {
	case a.prompt != nil:
		return a.prompt.update(a, m)
	case a.ask != nil:
		a.ask.paste(m.Content)
		return nil
	}
	return a.top().Update(m)
}

// news hears of rows that changed, of time and readings, and of what has ended.
func (a *App) news(msg tea.Msg) (cmd tea.Cmd, heard bool) {
	switch m := msg.(type) {
	case Changed:
		return a.refresh(), true
	case page.Tick:
		for _, p := range a.stack[:len(a.stack)-1] { // their titles are at the top
			p.Refresh()
		}
		return tea.Batch(a.refresh(), a.tick()), true
	case usageRead:
		return a.used(m), true
	case readAgain:
		return a.read(), true
	case completions:
		a.complete(m)
	case namespaceSought:
		return a.sought(m), true
	case undoRead:
		a.askUndo(m)
	case taskEnded:
		a.ended(m.index, m.err)
		if a.leaving && m.err == nil {
			return a.quitWhenAnswered(), true
		}
		a.leaving = false
		if m.then != nil {
			return page.Send(m.then(m.err)), true
		}
	case quitting:
		return a.quitWhenAnswered(), true
	case runEnded: // an error was read where it was said
		a.log[m.index].ended, a.log[m.index].err = true, m.err
		if m.err != nil {
			a.notice = a.log[m.index].line + ": " + m.err.Error()
		}
		a.top().Refresh()
	default:
		return nil, false
	}
	return nil, true
}

// navigation hears of pages that are to be shown or left.
func (a *App) navigation(msg tea.Msg) (cmd tea.Cmd, heard bool) {
	switch m := msg.(type) {
	case page.Open:
		return a.open(m.Page), true
	case page.Replace:
		if m.Notice != "" {
			a.notice = m.Notice
		}
		if a.top() == m.Old {
			a.leave(len(a.stack) - 1)
			return a.open(m.Page), true
		}
	case page.Back:
		if a.below(m.Of) && m.Notice != "" {
			a.notice = m.Notice
		}
	default:
		return nil, false
	}
	return nil, true
}

// wish hears of what pages want to be done.
func (a *App) wish(msg tea.Msg) (cmd tea.Cmd, heard bool) {
	switch m := msg.(type) {
	case page.Notice:
		a.say(m)
	case page.Copy:
		a.below(m.Of)
		a.notice = "Copied " + m.What
		return a.copying(m.Text), true
	case page.Ask:
		a.ask = &question{Ask: m}
	case page.Input:
		return a.askInput(m), true
	case page.Task:
		return a.start(m), true
	case page.EditText:
		return a.editing(m), true
	case page.Run:
		return a.run(m), true
	default:
		return nil, false
	}
	return nil, true
}

// pass gives a message to the prompt, else to all pages: an answer may be for one that is below another now.
func (a *App) pass(msg tea.Msg) tea.Cmd {
	if a.prompt != nil {
		if cmd := a.prompt.update(a, msg); cmd != nil {
			return cmd
		}
	}
	var cmds []tea.Cmd
	for _, p := range a.stack {
		cmds = append(cmds, p.Update(msg))
	}
	return tea.Batch(cmds...)
}

// refresh makes the page read its rows again, and returns the command that reads what it wants besides.
func (a *App) refresh() tea.Cmd {
	a.totals = page.Summarize(a.World)
	a.top().Refresh()
	if p, ok := a.top().(page.Wanting); ok && a.focused {
		return p.Wants()
	}
	return nil
}

func (a *App) used(m usageRead) tea.Cmd {
	a.reading = false
	if m.world == a.World {
		if m.err == nil {
			a.World.Usage.Take(m.list, a.World.Now())
		} else {
			a.World.Usage.Miss(a.World.Now())
		}
		a.totals = page.Summarize(a.World)
		a.top().Refresh()
	}
	if !a.focused {
		return nil
	}
	return tea.Tick(page.Every, func(time.Time) tea.Msg { return readAgain{} })
}

// readAgain asks for the next reading of what guests use.
type readAgain struct{}

// open shows a page above the others.
func (a *App) open(p page.Page) tea.Cmd {
	a.stack = append(a.stack, p)
	p.Refresh()
	if starter, ok := p.(page.Starter); ok {
		return starter.Start()
	}
	return nil
}

// leave ends what the pages above the first n have going on, and takes them away.
func (a *App) leave(n int) {
	for _, p := range a.stack[n:] {
		if c, ok := p.(page.Closer); ok {
			c.Close()
		}
	}
	a.stack = a.stack[:n]
}

// Close ends what pages have going on. It is to be called when the program has ended.
func (a *App) Close() { a.leave(0) }

// back ends a search, takes a filter away, or goes to the page below.
func (a *App) back() {
	if s, ok := a.top().(page.Searchable); ok && s.Searched() != "" {
		s.EndSearch()
		return
	}
	if f, ok := a.top().(page.Filterable); ok && !f.Filter().Empty() {
		f.SetFilter(filter.Filter{})
		return
	}
	if len(a.stack) > 1 {
		a.leave(len(a.stack) - 1)
		a.top().Refresh()
	}
}

// below goes to the page below one, if that is looked at.
func (a *App) below(p page.Page) bool {
	if a.top() != p || len(a.stack) == 1 {
		return false
	}
	a.leave(len(a.stack) - 1)
	a.top().Refresh()
	return true
}

// home replaces all pages by one, which is made when they are left: it may be one of them anew, and begins where the
// user was there.
func (a *App) home(make func(*page.World) page.Page) tea.Cmd {
	a.leave(0)
	return a.open(make(a.World))
}

func (a *App) say(n page.Notice) {
	if n.Bad {
		a.fail(n.Text)
		return
	}
	a.notice = n.Text
}

// fail shows an error, which stays until it is read.
func (a *App) fail(text string) { a.trouble, a.notice = append(a.trouble, text), "" }

// theme returns how everything looks.
func (a *App) theme() *theme.Theme { return a.World.Theme }
