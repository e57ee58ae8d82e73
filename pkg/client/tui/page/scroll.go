package page

import (
	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
)

// scroll is where in a text of so many lines a window of a height is.
type scroll struct {
	offset        *int
	lines, height int
}

func (s *scroll) by(lines int) { *s.offset = max(0, min(*s.offset+lines, s.lines-s.height)) }

// scrolling are the keys that scroll.
func scrolling[M any](of func(M) *scroll) keymap.Map[M] {
	bind := func(help string, by func(*scroll) int, keys ...string) keymap.Binding[M] {
		return keymap.Binding[M]{
			Keys: keys, Help: help, Quiet: true,
			Do: func(m M) tea.Cmd { s := of(m); s.by(by(s)); return nil },
		}
	}
	return keymap.Map[M]{
		bind("one line down", func(*scroll) int { return 1 }, "down", "j"),
		bind("one line up", func(*scroll) int { return -1 }, "up", "k"),
		bind("one page down", func(s *scroll) int { return s.height }, "pgdown", "space", "ctrl+f"),
		bind("one page up", func(s *scroll) int { return -s.height }, "pgup", "ctrl+b"),
		bind("to the beginning", func(s *scroll) int { return -s.lines }, "home", "g"),
		bind("to the end", func(s *scroll) int { return s.lines }, "end", "G"),
	}
}
