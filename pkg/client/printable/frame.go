package printable

import (
	"strings"
	"unicode/utf8"
)

// Frame returns a drawn screen with nothing in it but text, line ends, and the sequences that colour text (SGR). It is
// the last line of defence behind Line: values are escaped where they are drawn, and one that was forgotten cannot move
// the cursor or speak to the terminal. What is taken out leaves one cell, so that the drawing keeps its shape.
func Frame(drawn string) string {
	at := 0
	for at < len(drawn) {
		n := harmless(drawn[at:])
		if n == 0 {
			break
		}
		at += n
	}
	if at == len(drawn) {
		return drawn
	}
	var b strings.Builder
	b.Grow(len(drawn))
	b.WriteString(drawn[:at])
	for at < len(drawn) {
		if n := harmless(drawn[at:]); n > 0 {
			b.WriteString(drawn[at : at+n])
			at += n
			continue
		}
		_, size := utf8.DecodeRuneInString(drawn[at:])
		b.WriteRune(utf8.RuneError)
		at += size
	}
	return b.String()
}

// harmless returns how many bytes at the beginning of text are one character that may be drawn, or one SGR sequence; 0
// when they are neither.
func harmless(text string) int {
	switch c := text[0]; {
	case c == '\n', c >= ' ' && c < 0x7f:
		return 1
	case c == 0x1b:
		return sgr(text)
	case c < utf8.RuneSelf:
		return 0
	}
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 || Hostile(r) {
		return 0
	}
	return size
}

// maxSGR bounds a sequence, bytes: all attributes and two colours are 60.
const maxSGR = 100

// sgr returns the length of ESC [ parameters m at the beginning of text, or 0.
func sgr(text string) int {
	if len(text) < 3 || text[1] != '[' {
		return 0
	}
	for i := 2; i < min(len(text), maxSGR); i++ {
		switch c := text[i]; {
		case c == 'm':
			return i + 1
		case c >= '0' && c <= '9', c == ';', c == ':':
		default:
			return 0
		}
	}
	return 0
}
