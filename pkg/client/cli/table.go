package cli

import (
	"bytes"
	"io"
	"strings"

	"github.com/liggitt/tabwriter"
)

// The widths of kubectl's tables, characters: see GetNewTabWriter of k8s.io/cli-runtime/pkg/printers. Its writer also
// keeps the widths of one table for the next; ours does so only in a table that grows, since a command may print
// several tables one after the other.
const (
	tableMinWidth = 6 // with the padding
	tableTabWidth = 4
	tablePadding  = 3
)

// descriptionPadding is the padding of kubectl describe's columns, which have no least width.
const descriptionPadding = 2

// Table prints rows in columns, as kubectl does. A line of titles is a row like any other. Rows without cells, and rows
// of one cell, end the columns: those below have widths of their own. No cell can end a row or begin another cell, and
// no line ends in blanks.
type Table struct {
	out  io.Writer
	text bytes.Buffer
	rows *tabwriter.Writer

	// colour gives the colour of a cell of column, nil for none; cells are those of the rows so far.
	colour func(cell string) Colour
	column int
	cells  [][]string
}

// NewTable makes an empty table.
func NewTable(out io.Writer) *Table {
	t := &Table{out: out}
	t.rows = tabwriter.NewWriter(&t.text, tableMinWidth, tableTabWidth, tablePadding, ' ', 0)
	return t
}

// NewGrowingTable makes an empty table to which rows are added after others were flushed: they have the same columns.
func NewGrowingTable(out io.Writer) *Table {
	t := &Table{out: out}
	t.rows = tabwriter.NewWriter(
		&t.text, tableMinWidth, tableTabWidth, tablePadding, ' ', tabwriter.RememberWidths)
	return t
}

// NewDescription makes an empty table with the widths of kubectl describe, which mixes fields and tables.
func NewDescription(out io.Writer) *Table {
	t := &Table{out: out}
	t.rows = tabwriter.NewWriter(&t.text, 0, 0, descriptionPadding, ' ', 0)
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	clean := Cells(cells)
	if t.colour != nil {
		t.cells = append(t.cells, clean)
	}
	_, _ = io.WriteString(t.rows, strings.Join(clean, "\t")+"\n") // a bytes.Buffer takes all
}

// Flush writes the rows.
func (t *Table) Flush() error {
	if err := t.rows.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	out := t.out
	for line := range strings.Lines(t.text.String()) {
		line = strings.TrimRight(line, " \n")
		if t.colour != nil {
			line, t.cells = t.painted(line, t.cells[0]), t.cells[1:]
		}
		b.WriteString(line + "\n")
	}
	t.text.Reset()
	if t.colour != nil {
		out = raw(out) // the cells are clean, and the colours are ours
	}
	_, err := io.WriteString(out, b.String())
	return err
}
