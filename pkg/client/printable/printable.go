// Package printable makes text of strangers safe to show. What a guest, a tenant or a server says may hold escape
// sequences that retitle, recolour or query a terminal, controls that overprint what is there, and marks that turn the
// order of letters round. They are shown as Go's escapes (\u001b, \x9b), so that nothing is hidden and nothing is
// obeyed.
//
//	a table's cells ──► Line ─┐
//	a command's text ─────────┴──► Text (cli.Printer) ──► terminal, pipe, file
//	the dashboard's cells ──► widget.Harmless ──► own colours ──► Frame ──► terminal
package printable

import (
	"strings"
	"unicode/utf8"
)

// MaxGrowth is the most bytes that one byte of text becomes.
const MaxGrowth = 6

// Line returns text in one line: hostile characters are escaped, and a line's end, a carriage return before one, or a
// tab becomes a space. Doing it twice changes nothing.
func Line(text string) string { return escape(text, true) }

// Text returns text of any number of lines: hostile characters are escaped, tabs and line ends stay, and a carriage
// return before a line's end is left out. Doing it twice changes nothing.
func Text(text string) string { return escape(text, false) }

// Hostile reports whether a terminal may obey a character rather than show it: control characters of ASCII and of ISO
// 6429 (C1), marks that order text (BiDi), and Unicode's own line ends. Tab and line feed are hostile as well; Text
// keeps them.
func Hostile(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f: // C0, DEL, C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // BiDi
		return true
	}
	return r == 0x2028 || r == 0x2029
}

func escape(text string, oneLine bool) string {
	at := strings.IndexFunc(text, suspect)
	if at < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + MaxGrowth)
	b.WriteString(text[:at])
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case r == utf8.RuneError && size == 1:
			writeByte(&b, text[at])
		case r == '\r' && strings.HasPrefix(text[at+1:], "\n"):
			// The line feed follows.
		case (r == '\t' || r == '\n') && oneLine:
			b.WriteByte(' ')
		case r == '\t' || r == '\n' || !Hostile(r):
			b.WriteString(text[at : at+size])
		default:
			writeRune(&b, r)
		}
		at += size
	}
	return b.String()
}

// suspect reports whether a character may have to be escaped. Bytes that are no UTF-8 are RuneError.
func suspect(r rune) bool { return r == utf8.RuneError || Hostile(r) }

const digits = "0123456789abcdef"

// writeRune writes a character of the basic plane, where all hostile ones are, as JSON and Go do.
func writeRune(b *strings.Builder, r rune) {
	b.WriteString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		b.WriteByte(digits[r>>shift&0xf])
	}
}

// writeByte writes a byte that is no UTF-8; a terminal without UTF-8 could take it for a C1 control.
func writeByte(b *strings.Builder, c byte) {
	b.WriteString(`\x`)
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&0xf])
}
