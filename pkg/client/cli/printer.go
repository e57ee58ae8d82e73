package cli

import (
	"bytes"
	"cmp"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Printer is a standard stream as commands write text for people to it. What a terminal would obey is escaped
// (printable.Text): the text quotes guests, tenants and servers. A factory's streams are Printers, so that a command
// has to ask for anything else: IOStreams.RawOut and RawErr are for a guest's bytes and for this program's own
// sequences. It is safe for use by several goroutines.
type Printer struct {
	w io.Writer
	// terminal is whether w is one; formats for programs are written to others as they are.
	terminal bool

	mu sync.Mutex
	// cut is the beginning of a character whose end is to come.
	cut []byte
	// lost is the first error of w: what was to be written is not there.
	lost error
}

// Write implements io.Writer. A character may come in several pieces.
func (p *Printer) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := append(p.cut, data...)
	whole := len(text) - unfinished(text)
	p.cut = bytes.Clone(text[whole:])
	if whole == 0 {
		return len(data), nil
	}
	if err := p.pass(text[:whole]); err != nil {
		return 0, err
	}
	return len(data), nil
}

// pass writes text to w.
func (p *Printer) pass(text []byte) error {
	_, err := io.WriteString(p.w, printable.Text(string(text)))
	p.lost = cmp.Or(p.lost, err)
	return err
}

// Flush writes the beginning of a character that never ended.
func (p *Printer) Flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.cut
	if p.cut = nil; len(cut) == 0 {
		return nil
	}
	return p.pass(cut)
}

// unfinished returns how many bytes at the end of text begin a character, or a line's end of two, without ending it.
func unfinished(text []byte) int {
	if bytes.HasSuffix(text, []byte("\r")) {
		return 1
	}
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// raw returns the writer behind w, a Printer or not.
func raw(w io.Writer) io.Writer {
	p, ok := w.(*Printer)
	if !ok {
		return w
	}
	_ = p.Flush() // the writer's next error says the same
	return p.w
}

// forPrograms returns the writer for a format that programs read: nothing is changed on its way to a pipe or a file.
func forPrograms(w io.Writer) io.Writer {
	if p, ok := w.(*Printer); ok && !p.terminal {
		return raw(p)
	}
	return w
}

// printers returns streams like s whose Out and ErrOut are Printers.
func (s *IOStreams) printers() *IOStreams {
	return &IOStreams{
		In: s.In, Out: newPrinter(s.Out, s.OutIsTTY), ErrOut: newPrinter(s.ErrOut, s.ErrIsTTY),
		InIsTTY: s.InIsTTY, OutIsTTY: s.OutIsTTY, ErrIsTTY: s.ErrIsTTY, colour: s.colour, width: s.width,
	}
}

func newPrinter(w io.Writer, terminal bool) *Printer {
	if p, ok := w.(*Printer); ok {
		return p
	}
	return &Printer{w: w, terminal: terminal}
}

// RawOut returns standard output for bytes that are not text for people: a guest's, a picture's, and sequences of this
// program's own, without text from elsewhere in them.
func (s *IOStreams) RawOut() io.Writer { return raw(s.Out) }

// RawErr returns the same for standard error.
func (s *IOStreams) RawErr() io.Writer { return raw(s.ErrOut) }

// Flush writes what the streams hold back, at the program's end.
func (s *IOStreams) Flush() {
	for _, w := range []io.Writer{s.Out, s.ErrOut} {
		if p, ok := w.(*Printer); ok {
			_ = p.Flush() // Lost has it, and of ErrOut nobody is left to report it to
		}
	}
}

// Lost returns the first error of writing text to Out, at the program's end: the text is not complete, even if the
// command ignored the error.
func (s *IOStreams) Lost() error {
	p, ok := s.Out.(*Printer)
	if !ok {
		return nil
	}
	_ = p.Flush() // lost has it
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Cells returns a row's cells, each as a line of printable text.
func Cells(cells []string) []string {
	clean := make([]string, len(cells))
	for i, cell := range cells {
		clean[i] = printable.Line(cell)
	}
	return clean
}
