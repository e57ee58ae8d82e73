package theme

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Keys shows a key as keymap.Spell spells it.
func (t *Theme) Keys(spelled string) string {
	if !t.ascii {
		return spelled
	}
	return strings.NewReplacer(
		unicodeGlyphs.Enter, t.Enter, unicodeGlyphs.Space, t.Space, unicodeGlyphs.Shift, t.Shift,
	).Replace(spelled)
}

// likes are characters of texts, and the characters of ASCII that are shown for them.
var likes = map[rune]byte{
	'…': '~', '×': 'x', '→': '>', '←': '<', '↑': '^', '↓': 'v', '·': '.', '•': '*', '–': '-', '—': '-',
	'‘': '\'', '’': '\'', '“': '"', '”': '"', '\u00a0': ' ',
	'─': '-', '│': '|', '┌': '+', '┐': '+', '└': '+', '┘': '+', '├': '+', '┤': '+', '┬': '+', '┴': '+', '┼': '+',
	'▀': ' ', // The colour behind it is a pixel.
}

// Whole makes a drawn screen one of ASCII alone where the theme is: names and messages of the cluster, and what a guest
// writes, have other characters too. Each becomes its like, or as many question marks as it is wide.
func (t *Theme) Whole(screen string) string {
	if !t.ascii || !strings.ContainsFunc(screen, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return screen
	}
	var b strings.Builder
	for rest := screen; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r < utf8.RuneSelf {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if like, ok := likes[r]; ok {
			b.WriteByte(like)
			rest = rest[size:]
			continue
		}
		cluster, width := ansi.FirstGraphemeCluster(rest, ansi.GraphemeWidth)
		b.WriteString(strings.Repeat("?", width))
		rest = rest[max(size, len(cluster)):]
	}
	return b.String()
}
