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

	// History are the commands that were typed, the newest last.
	History []string

	stack         []page.Page
	width, height int
	prompt        *prompt
	ask           *question
	log           []entry
	trouble       []string // errors that were not yet read
	notice        string
	reading       bool // a reading of what guests use is on its way
	focused       bool
	click         click
	keys          keymap.Map[*App]
	editing       func(page.EditText) tea.Cmd
	copying       func(string) tea.Cmd
	totals        page.Summary // of the rows, when they were read last
	place         string       // the key of the page in the bar that was gone to
}

// entry is a line of the command log.
type entry struct {
	at    time.Time
	line  string
	ended bool
	err   error
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

// Update hears of keys, the mouse, rows that changed, and what has ended.
func (a *App) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = m.Width, m.Height
	case tea.FocusMsg:
		a.focused = true
		return a, tea.Batch(a.read(), a.refresh())
	case tea.BlurMsg:
		a.focused = false
	case tea.KeyPressMsg:
		return a, a.key(m)
	case tea.PasteMsg:
		if a.prompt != nil {
			return a, a.prompt.update(a, msg)
		}
		if a.ask != nil {
			a.ask.paste(m.Content)
			return a, nil
		}
		return a, a.top().Update(msg)
	case tea.MouseClickMsg:
		return a, a.clicked(m)
	case tea.MouseWheelMsg:
		return a, a.wheel(m)
	case Changed:
		return a, a.refresh()
	case page.Tick:
		for _, p := range a.stack[:len(a.stack)-1] { // their titles are at the top
			p.Refresh()
		}
		return a, tea.Batch(a.refresh(), a.tick())
	case usageRead:
		return a, a.used(m)
	case readAgain:
		return a, a.read()
	case completions:
		a.complete(m)
	case page.Open:
		return a, a.open(m.Page)
	case page.Replace:
		if a.top() == m.Old {
			a.leave(len(a.stack) - 1)
			return a, a.open(m.Page)
		}
	case page.Back:
		if a.below(m.Of) {
			if m.Notice != "" {
				a.notice = m.Notice
			}
		}
	case page.Notice:
		a.say(m)
	case page.Copy:
		a.below(m.Of)
		a.notice = "Copied " + m.What
		return a, a.copying(m.Text)
	case page.Ask:
		a.ask = &question{Ask: m}
	case page.Input:
		return a, a.askInput(m)
	case page.Task:
		return a, a.start(m)
	case page.EditText:
		return a, a.editing(m)
	case page.Run:
		return a, a.run(m)
	case taskEnded:
		a.ended(m.index, m.err)
		if m.then != nil {
			return a, page.Send(m.then(m.err))
		}
	case runEnded: // an error was read where it was said
		a.log[m.index].ended, a.log[m.index].err = true, m.err
		if m.err != nil {
			a.notice = a.log[m.index].line + ": " + m.err.Error()
		}
		a.top().Refresh()
	default:
		if a.prompt != nil {
			if cmd := a.prompt.update(a, msg); cmd != nil {
				return a, cmd
			}
		}
		var cmds []tea.Cmd
		for _, p := range a.stack { // an answer may be for a page that is below another now
			cmds = append(cmds, p.Update(msg))
		}
		return a, tea.Batch(cmds...)
	}
	return a, nil
}

// refresh has the page read its rows anew, and what it wants besides.
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
	if m.err == nil && m.world == a.World {
		a.World.Usage.Take(m.list)
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

// home replaces all pages by one.
func (a *App) home(p page.Page) tea.Cmd {
	a.leave(0)
	return a.open(p)
}

func (a *App) say(n page.Notice) {
	if n.Bad {
		a.trouble = append(a.trouble, n.Text)
		return
	}
	a.notice = n.Text
}

// logged adds a line to the command log.
func (a *App) logged(line string) int {
	a.log = append(a.log, entry{at: a.World.Now(), line: line})
	return len(a.log) - 1
}

// start does a task while the dashboard goes on.
func (a *App) start(t page.Task) tea.Cmd {
	index := a.logged(t.Line)
	a.notice = t.Line
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return taskEnded{index, t.Do(ctx), t.Then}
	}
}

func (a *App) ended(index int, err error) {
	a.log[index].ended, a.log[index].err = true, err
	if err != nil {
		a.trouble = append(a.trouble, a.log[index].line+": "+a.World.Say(err))
	}
}

// theme is how everything looks.
func (a *App) theme() *theme.Theme { return a.World.Theme }
