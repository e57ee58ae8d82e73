package app

import (
	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// question is what is asked before a task is done.
type question struct {
	page.Ask
	typed string
	// wrong says that what was typed when enter was pressed was another text.
	wrong bool
}

func (q *question) paste(text string) {
	if q.Typed != "" {
		q.typed += widget.Harmless(text)
	}
}

// answer takes a key as part of the answer.
func (a *App) answer(key, text string) tea.Cmd {
	q := a.ask
	agreed := false
	q.wrong = false
	switch {
	case key == "esc":
		a.ask = nil
		a.notice = "Nothing was done"
		return nil
	case q.Typed == "":
		agreed = key == "y" || key == "Y"
		if !agreed && (key == "n" || key == "N" || key == "enter") {
			a.ask, a.notice = nil, "Nothing was done"
			return nil
		}
	case key == "backspace":
		if r := []rune(q.typed); len(r) > 0 {
			q.typed = string(r[:len(r)-1])
		}
	case key == "ctrl+u":
		q.typed = ""
	case key == "enter":
		if agreed = q.typed == q.Typed; !agreed {
			q.wrong = true
		}
	default:
		q.typed += text
	}
	if !agreed {
		return nil
	}
	a.ask = nil
	if q.Do != nil {
		return q.Do()
	}
	return a.start(q.Task) // at once, so that a q that follows knows of it
}

func (q *question) view() (string, theme.Role) {
	if q.Typed == "" {
		return q.Question + " [y/N]", theme.Warn
	}
	text := q.Question + " Type " + q.Typed + " and enter: " + q.typed + "_"
	if q.wrong {
		text += "  That is not " + q.Typed + "; esc cancels."
	}
	return text, theme.Bad
}
