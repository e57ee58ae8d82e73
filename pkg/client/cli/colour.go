package cli

import (
	"io"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Colour is a colour of text on a terminal: one of the eight that the user's own theme defines. The zero value is the
// terminal's own.
type Colour string

// Colours of states. What they say is in the text, too.
const (
	Green  Colour = "32"
	Yellow Colour = "33"
	Red    Colour = "31"
	Cyan   Colour = "36"
	Grey   Colour = "90"
)

// paint encloses text, which is printable, in a colour.
func (c Colour) paint(text string) string {
	if c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// PrintMarks writes lines to Out. Where Out shows colour, a line that begins with blanks and one of the marks has that
// mark in its colour.
func (s *IOStreams) PrintMarks(text string, marks map[string]Colour) error {
	if !s.ColourOut() {
		_, err := io.WriteString(s.Out, text)
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(printable.Text(text)) {
		rest := strings.TrimLeft(line, " ")
		word, _, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
		if colour, ok := marks[word]; ok && len(rest) < len(line) {
			line = line[:len(line)-len(rest)] + colour.paint(word) + rest[len(word):]
		}
		b.WriteString(line)
	}
	_, err := io.WriteString(s.RawOut(), b.String())
	return err
}

// Colour shows a column's cells, counted from 0, in the colour that of returns for each, if Out of the streams, to
// which the table is written, shows colours. The header is asked about too.
func (t *Table) Colour(s *IOStreams, column int, of func(cell string) Colour) {
	if s.ColourOut() {
		t.colour, t.column = of, column
	}
}

// painted returns a line of the table with its cell in colour. Cells are separated by blanks only, so that each is
// found where the one before it ends.
func (t *Table) painted(line string, cells []string) string {
	if t.column >= len(cells) {
		return line
	}
	at := 0
	for i, cell := range cells {
		for at < len(line) && line[at] == ' ' && !strings.HasPrefix(line[at:], cell) {
			at++
		}
		cell = strings.TrimRight(cell, " ")
		if !strings.HasPrefix(line[at:], cell) {
			return line
		}
		if i == t.column {
			return line[:at] + t.colour(cell).paint(cell) + line[at+len(cell):]
		}
		at += len(cell)
	}
	return line
}
