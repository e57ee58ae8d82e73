package listcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// table prints rows in columns. Rows that come later keep the widths of those before where they fit.
type table struct {
	o       *Options
	started bool
	widths  []int
}

func (t *table) print(rows []list.Row) error {
	o := t.o
	wide := o.Output.Format == formatWide
	var lines [][]string
	if !t.started && !o.Output.NoHeaders {
		lines = append(lines, list.Headers(o.AllNamespaces, wide))
	}
	t.started = true
	now := o.Factory.Now()
	for _, row := range rows {
		lines = append(lines, cli.Cells(row.Cells(now.Truncate(time.Second), o.AllNamespaces, wide)))
	}
	if !o.Watch {
		return t.aligned(lines)
	}
	t.widen(lines)
	for _, line := range lines {
		if err := t.padded(line); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) aligned(lines [][]string) error {
	w := cli.NewTable(t.o.Factory.IO.Out)
	column := 1 // STATUS
	if t.o.AllNamespaces {
		column++
	}
	w.Colour(t.o.Factory.IO, column, statusColour)
	for _, line := range lines {
		w.Row(line...)
	}
	return w.Flush()
}

// statusColour returns the colour of a status. It does not tell whether a machine is ready, which has a column of its
// own.
func statusColour(status string) cli.Colour {
	if status == list.Headers(false, false)[1] {
		return ""
	}
	switch store.HealthOf(status, true) {
	case store.Well:
		return cli.Green
	case store.Off:
		return cli.Grey
	case store.Held:
		return cli.Yellow
	case store.Bad:
		return cli.Red
	}
	return cli.Cyan
}

// widen makes room for all lines before the first of them is printed.
func (t *table) widen(lines [][]string) {
	for _, line := range lines {
		if t.widths == nil {
			t.widths = slices.Repeat([]int{10}, len(line))
		}
		for i, cell := range line {
			t.widths[i] = max(t.widths[i], len(cell))
		}
	}
}

func (t *table) padded(line []string) error {
	var b strings.Builder
	for i, cell := range line {
		if i == len(line)-1 {
			b.WriteString(cell)
			break
		}
		fmt.Fprintf(&b, "%-*s   ", t.widths[i], cell)
	}
	_, err := fmt.Fprintln(t.o.Factory.IO.Out, b.String())
	return err
}
