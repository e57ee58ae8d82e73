package cli

import (
	"bytes"
	"io"
	"strings"
	"text/tabwriter"
)

// The widths of kubectl's tables, characters: see GetNewTabWriter of k8s.io/cli-runtime/pkg/printers. Its writer also
// keeps the widths of one table for the next; ours does not, since a command may print several tables one after the
// other.
const (
	tableMinWidth = 6 // with the padding
	tableTabWidth = 4
	tablePadding  = 3
)

// Table prints rows in columns, as kubectl does. A line of titles is a row like any other. Rows without cells, and rows
// of one cell, end the columns: those below have widths of their own. No cell can end a row or begin another cell, and
// no line ends in blanks.
type Table struct {
	out  io.Writer
	text bytes.Buffer
	rows *tabwriter.Writer
}

// NewTable makes an empty table.
func NewTable(out io.Writer) *Table {
	t := &Table{out: out}
	t.rows = tabwriter.NewWriter(&t.text, tableMinWidth, tableTabWidth, tablePadding, ' ', 0)
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	_, _ = io.WriteString(t.rows, strings.Join(Cells(cells), "\t")+"\n") // a bytes.Buffer takes all
}

// Flush writes the rows.
func (t *Table) Flush() error {
	if err := t.rows.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(t.text.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	t.text.Reset()
	_, err := io.WriteString(t.out, b.String())
	return err
}
