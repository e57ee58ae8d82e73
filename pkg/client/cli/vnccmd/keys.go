package vnccmd

import (
	"errors"
	"image"

	"github.com/virtkit/virtkit/pkg/client/tui/input"
	"github.com/virtkit/virtkit/pkg/client/tui/screen"
	"github.com/virtkit/virtkit/pkg/stream/rfb"
)

// errLeft is that the user has pressed Ctrl-].
var errLeft = errors.New("the user has left")

// keyboard is where keys and moves of the pointer go: an *rfb.Conn.
type keyboard interface {
	Key(sym uint32, down bool) error
	Pointer(x, y int, buttons byte) error
	Relative() bool
}

// typist turns what the user does at a terminal into what a VNC client sends.
type typist struct {
	to keyboard
	// buttons are those that are down, at is where the pointer was last.
	buttons byte
	at      image.Point
}

var named = map[input.Key]uint32{
	input.Escape: rfb.KeyEscape, input.Enter: rfb.KeyReturn, input.Tab: rfb.KeyTab, input.Backspace: rfb.KeyBackspace,
	input.Insert: rfb.KeyInsert, input.Delete: rfb.KeyDelete, input.Left: rfb.KeyLeft, input.Right: rfb.KeyRight,
	input.Up: rfb.KeyUp, input.Down: rfb.KeyDown, input.PageUp: rfb.KeyPageUp, input.PageDown: rfb.KeyPageDown,
	input.Home: rfb.KeyHome, input.End: rfb.KeyEnd, input.CapsLock: rfb.KeyCapsLock,
	input.ScrollLock: rfb.KeyScrollLock,
	input.NumLock:    rfb.KeyNumLock, input.PrintScreen: rfb.KeyPrint, input.Pause: rfb.KeyPause,
	input.Menu: rfb.KeyMenu,
}

var modifiers = []struct {
	held input.Modifiers
	sym  uint32
}{
	{input.Control, rfb.KeyControl}, {input.Alt, rfb.KeyAlt}, {input.Super, rfb.KeySuper}, {input.Shift, rfb.KeyShift},
}

// handle passes an event on; the one that leaves is errLeft. The layout says where on the terminal the picture is.
func (t *typist) handle(e input.Event, layout screen.Layout, picture image.Point) error {
	switch {
	case e.Paste != "":
		for _, r := range e.Paste {
			if r == '\r' {
				r = '\n' // what terminals make of line ends
			}
			if err := t.press(input.Event{Rune: r}); err != nil {
				return err
			}
		}
		return nil
	case e.Mouse:
		return t.move(e, layout, picture)
	case e.Modifiers == input.Control && (e.Rune == ']' || e.Rune == '5'):
		return errLeft
	case e.Key == input.End && e.Modifiers == input.Control|input.Alt:
		e.Key = input.Delete // Ctrl-Alt-Del itself is the user's own machine's
	}
	return t.press(e)
}

// press presses and releases a key with its modifiers.
func (t *typist) press(e input.Event) error {
	sym, known := named[e.Key]
	switch {
	case e.Key >= input.F1:
		sym = rfb.KeyF1 + uint32(e.Key-input.F1)
	case e.Key == input.None && e.Rune >= ' ' || e.Rune == '\n' || e.Rune == '\t':
		sym = rfb.Keysym(e.Rune)
		if rfb.NeedsShift(e.Rune) {
			e.Modifiers |= input.Shift
		}
	case !known:
		return nil
	}
	var held []uint32
	for _, m := range modifiers {
		if e.Modifiers&m.held != 0 {
			held = append(held, m.sym)
		}
	}
	for _, m := range held {
		if err := t.to.Key(m, true); err != nil {
			return err
		}
	}
	if err := t.to.Key(sym, true); err != nil {
		return err
	}
	if err := t.to.Key(sym, false); err != nil {
		return err
	}
	for i := range held {
		if err := t.to.Key(held[len(held)-1-i], false); err != nil {
			return err
		}
	}
	return nil
}

// relativeBase is what a guest's mouse takes for no move (QEMU's extension of the protocol).
const relativeBase = 0x7fff

// move moves the pointer, presses or releases its buttons.
func (t *typist) move(e input.Event, layout screen.Layout, picture image.Point) error {
	at, on := layout.At(e.Column, e.Row, picture)
	if !on {
		return nil
	}
	bit := byte(0)
	if e.Button > 0 {
		bit = 1 << (e.Button - 1)
	}
	wheel := e.Button >= 4
	switch {
	case e.Motion:
	case e.Down:
		t.buttons |= bit
	default:
		t.buttons &^= bit
	}
	before := t.at
	t.at = at
	if t.to.Relative() {
		d := at.Sub(before)
		at = image.Pt(relativeBase+d.X, relativeBase+d.Y)
	}
	if err := t.to.Pointer(at.X, at.Y, t.buttons); err != nil || !wheel {
		return err
	}
	t.buttons &^= bit // a wheel is never released
	if t.to.Relative() {
		at = image.Pt(relativeBase, relativeBase)
	}
	return t.to.Pointer(at.X, at.Y, t.buttons)
}
