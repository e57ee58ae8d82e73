package input

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for sent, want := range map[string][]Event{
		"aÄ\r": {{Rune: 'a'}, {Rune: 'Ä'}, {Key: Enter}},
		"\x01\x1d\x00\x1f": {
			{Rune: 'a', Modifiers: Control},
			{Rune: ']', Modifiers: Control},
			{Rune: ' ', Modifiers: Control},
			{Rune: '_', Modifiers: Control},
		},
		"\x7f\t\x1b[Z":           {{Key: Backspace}, {Key: Tab}, {Key: Tab, Modifiers: Shift}},
		"\x1b[A\x1bOB\x1b[1;5C":  {{Key: Up}, {Key: Down}, {Key: Right, Modifiers: Control}},
		"\x1b[3~\x1b[5;3~\x1b[H": {{Key: Delete}, {Key: PageUp, Modifiers: Alt}, {Key: Home}},
		"\x1bOP\x1b[24~\x1b[[C":  {{Key: F1}, {Key: F(12)}, {Key: F(3)}},
		"\x1bx\x1b\x01\x1b\r": {
			{Rune: 'x', Modifiers: Alt},
			{Rune: 'a', Modifiers: Alt | Control},
			{Key: Enter, Modifiers: Alt},
		},
		"\x1b\x1b[A":             {{Key: Escape}, {Key: Up}},
		"\x1b[93;5u\x1b[27u":     {{Rune: ']', Modifiers: Control}, {Key: Escape}},
		"\x1b[105;5u\x1b[97;2u":  {{Rune: 'i', Modifiers: Control}, {Rune: 'A', Modifiers: Shift}},
		"\x1b[97;9u\x1b[97;1:3u": {{Rune: 'a', Modifiers: Super}}, // a release is nothing
		"\x1b[57376u\x1b[57404u": {{Key: F(13)}, {Rune: '5'}},
		"\x1b[97:65:99;2u":       {{Rune: 'A', Modifiers: Shift}},
		"\x1b[27;5;46~":          {{Rune: '.', Modifiers: Control}},
		"\x1b[1;7F":              {{Key: End, Modifiers: Alt | Control}},
		"\x1b[<0;3;4M\x1b[<0;3;4m": {
			{Mouse: true, Column: 2, Row: 3, Button: 1, Down: true},
			{Mouse: true, Column: 2, Row: 3, Button: 1},
		},
		"\x1b[<35;1;1M\x1b[<64;1;1M":   {{Mouse: true, Motion: true}, {Mouse: true, Button: 4, Down: true}},
		"\x1b[<34;2;2M":                {{Mouse: true, Column: 1, Row: 1, Button: 3, Down: true, Motion: true}},
		"\x1b[200~a\x1b[A\r\x1b[201~b": {{Paste: "a\x1b[A\r"}, {Rune: 'b'}},
		// Answers, and what nobody knows.
		"\x1b_Gi=31;OK\x1b\\\x1b[?1u\x1b[6;16;8t\x1b[?62;4cx": {{Rune: 'x'}},
		"\x1b]11;rgb:0/0/0\x07\x1b[99999999999999999999~\xff": nil,
	} {
		// All at once, and byte by byte.
		var d Decoder
		whole := d.Decode([]byte(sent))
		var bytewise []Event
		for i := range len(sent) {
			bytewise = append(bytewise, d.Decode([]byte{sent[i]})...)
		}
		for _, got := range [][]Event{whole, bytewise} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q\n got %+v\nwant %+v", sent, got, want)
			}
		}
		if d.Pending() {
			t.Errorf("%q: something is left", sent)
		}
	}
}

func TestFlush(t *testing.T) {
	for sent, want := range map[string][]Event{
		"\x1b":       {{Key: Escape}},
		"\x1b[":      {{Rune: '[', Modifiers: Alt}},
		"\x1bO":      {{Rune: 'O', Modifiers: Alt}},
		"\x1b\x1b":   {{Key: Escape}, {Key: Escape}},
		"\x1b[200~a": nil, // a paste goes on
	} {
		var d Decoder
		if got := slices.Concat(d.Decode([]byte(sent)), d.Flush()); !reflect.DeepEqual(got, want) || d.Pending() {
			t.Errorf("%q: %+v, want %+v", sent, got, want)
		}
	}
}

func TestPasteIsBounded(t *testing.T) {
	var d Decoder
	d.Decode([]byte("\x1b[200~"))
	for range 40 {
		d.Decode([]byte(strings.Repeat("x", 64<<10)))
	}
	if e := d.Decode([]byte("\x1b[201~")); len(e) != 1 || len(e[0].Paste) != maxPaste {
		t.Errorf("%d events", len(e))
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"\x1b[200~a\x1b[201~", "\x1b[<0;3;4M", "\x1b[97:65;2:1;3u", "\x1b_G\x1b\\", "\x1b[[A", "é\x1b\x1b",
	} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var whole, parts Decoder
		at = min(max(at, 0), len(data))
		a := whole.Decode(data)
		b := slices.Concat(parts.Decode(data[:at]), parts.Decode(data[at:]))
		if fmt.Sprint(a) != fmt.Sprint(b) && len(data) < maxSequence {
			t.Errorf("%q cut at %d: %v, whole: %v", data, at, b, a)
		}
		whole.Flush()
		if len(whole.pending) > maxSequence {
			t.Errorf("%d bytes are pending", len(whole.pending))
		}
	})
}
