package page

import (
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/pace"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// cancelKey ends a transfer.
const cancelKey = "K"

// TransferList is the page of the dashboard's transfers.
type TransferList struct{ rows[*Transfer] }

// NewTransferList makes the page.
func NewTransferList(w *World) *TransferList {
	p := &TransferList{}
	p.rows = rows[*Transfer]{
		world: w, title: "Transfers", what: "transfers",
		lacks:  func() string { return "Nothing was transferred yet" },
		advice: "on the page of images f pulls one; on a VM or a snapshot x exports it",
		state:  func() store.State { return connection(w) },
		read:   func() []*Transfer { return w.Transfers.All() },
	}
	p.table = widget.Table[*Transfer]{
		Columns: transferColumns(w), Now: w.Now, Theme: w.Theme,
		Key: func(t *Transfer) store.Key { return store.Key{Name: fmt.Sprint(t.id)} },
	}
	type bound = *rows[*Transfer]
	p.bind(keymap.Map[bound]{
		{
			Keys: []string{"enter"}, Name: "details", Help: "everything about the transfer",
			Allowed: bound.none, Do: p.open(func(t *Transfer) Page { return newTransferText(w, t) }),
		},
		cancelBinding(func(p bound) *Transfer { return p.current() }),
	}...)
	p.Refresh()
	return p
}

// Start goes to the newest transfer, which may have begun since the page was made.
func (p *TransferList) Start() tea.Cmd {
	p.table.Top()
	return nil
}

// cancelBinding returns the key that cancels a transfer, which of gives; it may be nil.
func cancelBinding[M any](of func(M) *Transfer) keymap.Binding[M] {
	return keymap.Binding[M]{
		Keys: []string{cancelKey}, Name: "cancel", Help: "end the transfer",
		Allowed: func(m M) string {
			if t := of(m); t == nil || !t.running() {
				return "no transfer is under way here"
			}
			return ""
		}, Do: func(m M) tea.Cmd {
			t := of(m)
			return Send(Ask{Question: "Cancel the " + t.What + "? " + t.Loses, Do: func() tea.Cmd {
				t.stop()
				return Send(Notice{Text: "The " + t.What + " ends"})
			}})
		},
	}
}

// transferState returns how a transfer is, in a word.
func transferState(t *Transfer) (string, theme.Role) {
	switch o := t.outcome(); {
	case !o.ended && o.cancelled:
		return "Ending", theme.Warn
	case !o.ended:
		return "Running", theme.Busy
	case errors.Is(o.err, ErrCancelled):
		return "Cancelled", theme.Dim
	case o.err != nil:
		return "Failed", theme.Bad
	}
	return "Done", theme.Good
}

func transferColumns(w *World) []widget.Column[*Transfer] {
	type column = widget.Column[*Transfer]
	moving := func(title string, priority int, of func(pace.Reading) string) column {
		return column{
			Title: title, Right: true, Priority: priority, Volatile: true,
			Cell: func(t *Transfer, _ time.Time) widget.Cell {
				reading := t.Reading()
				if !t.running() || reading.Name == "" { // no step has begun
					return widget.Cell{}
				}
				return widget.Cell{Text: of(reading), Role: theme.Busy}
			},
		}
	}
	return []column{
		{
			Title: "TRANSFER", Max: 60, First: true,
			Cell:    func(t *Transfer, _ time.Time) widget.Cell { return widget.Cell{Text: t.What} },
			Compare: func(a, b *Transfer) int { return b.id - a.id },
		},
		{Title: "STATE", Max: 12, Cell: func(t *Transfer, _ time.Time) widget.Cell {
			word, role := transferState(t)
			return state(w.Theme, word, role)
		}},
		moving("DONE", 0, pace.Reading.Percent),
		moving("RATE", 2, func(r pace.Reading) string { return known(r.PerSecond > 0, r.Speed()) }),
		moving("LEFT", 1, pace.Reading.Remaining),
		{Title: "AGE", Right: true, Priority: 4, Volatile: true, Cell: func(t *Transfer, now time.Time) widget.Cell {
			return widget.Cell{Text: age(t.began, now), Role: theme.Dim}
		}},
		{Title: "DETAILS", Priority: 3, Flex: true, Volatile: true, Cell: func(t *Transfer, _ time.Time) widget.Cell {
			text, role := transferDetails(w, t)
			return widget.Cell{Text: text, Role: role}
		}},
	}
}

// transferDetails returns what a transfer does now, or how it has ended.
func transferDetails(w *World, t *Transfer) (string, theme.Role) {
	o := t.outcome()
	switch {
	case !o.ended:
		return t.Progress(), theme.Busy
	case errors.Is(o.err, ErrCancelled):
		return "", theme.Dim
	case o.err != nil:
		return w.Say(o.err), theme.Bad
	}
	return strings.Join(append([]string{t.To}, o.notes...), "; "), theme.Dim
}

// newTransferText makes the page of one transfer.
func newTransferText(w *World, t *Transfer) *Text {
	return NewLive(w, t.What, func() []widget.Line {
		o := t.outcome()
		word, role := transferState(t)
		lines := []widget.Line{
			{Text: "  " + Capital(t.What), Role: theme.Title},
			{Text: "  to " + t.To},
			{Text: fmt.Sprintf("  %s, begun %s ago", word, age(t.began, w.Now())), Role: role},
		}
		if progress := t.Progress(); progress != "" {
			lines = append(lines, widget.Line{Text: "  " + progress, Role: theme.Busy, Hang: 2})
		}
		if o.err != nil && !errors.Is(o.err, ErrCancelled) {
			lines = append(lines, widget.Line{Text: "  " + w.Say(o.err), Role: theme.Bad, Hang: 2})
		}
		for _, note := range o.notes {
			lines = append(lines, widget.Line{Text: "  note: " + note, Role: theme.Warn, Hang: 4})
		}
		return lines
	})
}
