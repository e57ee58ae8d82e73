package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// IOStreams are a command's standard streams and what is known about the terminals behind them. Data
// goes to Out and nothing else does; progress, prompts and hints go to ErrOut, and only when
// ErrIsTTY. Those of a factory are Printers: see RawOut and RawErr for what is not text.
type IOStreams struct {
	In     io.Reader
	Out    io.Writer
	ErrOut io.Writer

	InIsTTY  bool
	OutIsTTY bool
	ErrIsTTY bool

	// colour is whether escape sequences may be written where a terminal reads them.
	colour bool
	// width is the terminal's columns; 0 means there is no terminal.
	width  func() int
	status status
}

// SystemStreams returns the process's own streams. Colour follows NO_COLOR (https://no-color.org) and TERM=dumb.
func SystemStreams(getenv func(string) string) *IOStreams {
	s := &IOStreams{
		In:       os.Stdin,
		Out:      os.Stdout,
		ErrOut:   os.Stderr,
		InIsTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		OutIsTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrIsTTY: term.IsTerminal(int(os.Stderr.Fd())),
		colour:   getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
	}
	s.width = func() int {
		w, _, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil {
			return 0
		}
		return w
	}
	return s
}

// ColourOut reports whether Out shows colour.
func (s *IOStreams) ColourOut() bool { return s.OutIsTTY && s.colour }

// ColourErr reports whether ErrOut shows colour.
func (s *IOStreams) ColourErr() bool { return s.ErrIsTTY && s.colour }

// Width returns the terminal's width in columns, or 0 when Out is no terminal.
func (s *IOStreams) Width() int {
	if !s.OutIsTTY || s.width == nil {
		return 0
	}
	return s.width()
}

// Reading returns the same streams, but what is read is a terminal.
func (s *IOStreams) Reading(terminal io.Reader) *IOStreams {
	return &IOStreams{
		In: terminal, Out: s.Out, ErrOut: s.ErrOut, InIsTTY: true, OutIsTTY: s.OutIsTTY, ErrIsTTY: s.ErrIsTTY,
		colour: s.colour, width: s.width,
	}
}

// NoStreams returns streams that are at their end and take nothing, for what is made from the commands rather than by
// running them.
func NoStreams() *IOStreams {
	return &IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
}
