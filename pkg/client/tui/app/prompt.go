package app

import (
	"fmt"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// prompt is the line that filters and commands are typed into.
type prompt struct {
	input textinput.Model
	// typed hears of each change; done of enter. cancelled hears of esc.
	typed, done func(string) tea.Cmd
	cancelled   func()
	err         error
	note        string // what is said beside it
	// candidates are what may be meant, shown above the line; values are those of a command, with its name.
	candidates func(text string) []candidate
	values     []string
	history    []string
	at         int
}

// candidate is something that may be typed.
type candidate struct{ name, help string }

// candidatesMost is how many candidates are shown.
const candidatesMost = 8

// view draws the line, and above it what may be typed.
func (p *prompt) view(a *App, t *theme.Theme) []string {
	var lines []string
	if p.candidates != nil {
		all := p.candidates(p.input.Value())
		limit := max(1, min(candidatesMost, a.height/3))
		shown := all[:min(len(all), limit)]
		width := 0
		for _, c := range shown {
			width = max(width, ansi.StringWidth(c.name))
		}
		for _, c := range shown {
			name := t.Paint(theme.Key, widget.Pad(t, widget.Harmless(c.name), width))
			lines = append(lines, widget.Pad(t, " "+name+"  "+t.Paint(theme.Dim, c.help), a.width))
		}
		if more := len(all) - len(shown); more > 0 {
			text := fmt.Sprintf(" %d more; tab completes", more)
			lines = append(lines, t.Paint(theme.Dim, widget.Pad(t, text, a.width)))
		}
	}
	line := widget.Fill(p.input.View(), a.width, 1) // with a suggestion it has blanks beyond its width
	if p.note != "" || p.err != nil {
		line = p.input.View()
	}
	if p.note != "" {
		line += "  " + t.Paint(theme.Dim, p.note)
	}
	if p.err != nil {
		line += "  " + t.Paint(theme.Bad, p.err.Error())
	}
	return append(lines, widget.Pad(t, line, a.width))
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
		before := p.input.Value()
		p.input.SetValue(value)
		p.input.CursorEnd()
		if p.typed != nil && value != before {
			return p.typed(value)
		}
		return nil
	}
	return p.update(a, m)
}

// find filters rows, or searches in a text.
func (a *App) find() tea.Cmd {
	if a.filterable() != nil {
		return a.askFilter()
	}
	target := a.searchable()
	target.EndSearch()
	p := a.newPrompt("/")
	p.input.SetWidth(max(10, a.width/2)) // where the match is stands beside it
	p.typed = func(text string) tea.Cmd {
		p.note = target.Search(text)
		return nil
	}
	p.done = func(text string) tea.Cmd {
		a.notice = p.note
		return nil
	}
	p.cancelled = func() { target.Search(""); target.EndSearch() }
	a.prompt = p
	return p.input.Focus()
}

// askFilter chooses rows while the filter is typed. The line begins empty, and the rows stay as they are until
// something is typed; up brings the filter that there is.
func (a *App) askFilter() tea.Cmd {
	target := a.top().(page.Filterable)
	was := target.Filter()
	p := a.newPrompt("/")
	p.input.SetWidth(max(10, a.width/3)) // what is wrong stands beside it
	if text := was.String(); text != "" {
		p.history, p.at, p.note = []string{text}, 1, "up: "+text
	}
	typed := false
	p.typed = func(text string) tea.Cmd {
		typed, p.note = true, ""
		f, err := filter.Parse(text)
		if p.err = err; err == nil {
			target.SetFilter(f)
		}
		return nil
	}
	p.done = func(text string) tea.Cmd {
		if _, err := filter.Parse(text); typed && err != nil {
			a.notice = page.Capital(err.Error())
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
