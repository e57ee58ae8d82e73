// Package hostile has what a tenant or a guest may write into any text that it controls, and checks that none of it
// reaches a terminal. Fill puts it into an object, Check reads what was written.
package hostile

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Text has each kind of character that a terminal obeys, and bytes that are no UTF-8.
const Text = "\x1b[5;41m\x1b]0;owned\a\x1b]52;c;cm0=\x1b\\\x1bP+q\x1b\\\x1bc" + // CSI, OSC, DCS, RIS
	"\rover\b\b\b\b\x00\x7f" + // overprinting, NUL, DEL
	"\u009b31m\u009d0;x\u009c\x9b31m\xff" + // C1, as characters and as bytes
	"\u202e\u202a\u202c\u2066\u2067\u2069\u200e\u200f\u061c" + // BiDi
	"\u2028\u2029\v\f\u0085" // other ends of lines

// JSON is Text as JSON carries it: it has no other bytes than UTF-8's.
var JSON = strings.ToValidUTF8(Text, "")

// Blink is the colour of Text, which virtctl never uses: it tells a stranger's colours from its own.
const Blink = "\x1b[5;41m"

// Fill appends text to every string of the object that v points to: in structs, slices, maps' values and their keys,
// and behind pointers and interfaces. Strings that keep takes, by the path of their field and their value, stay.
func Fill(v any, text string, keep func(path, value string) bool) {
	fill(reflect.ValueOf(v), text, "", keep)
}

func fill(v reflect.Value, text, path string, keep func(path, value string) bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text, path, keep)
		}
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() {
			inner := reflect.New(v.Elem().Type()).Elem()
			inner.Set(v.Elem())
			fill(inner, text, path, keep)
			v.Set(inner)
		}
	case reflect.String:
		if v.CanSet() && !keep(path, v.String()) {
			v.SetString(v.String() + text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i), text, path+"."+field.Name, keep)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text, path, keep)
		}
	case reflect.Map:
		fillMap(v, text, path, keep)
	}
}

func fillMap(v reflect.Value, text, path string, keep func(path, value string) bool) {
	if v.IsNil() {
		return
	}
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		at := path
		if key.Kind() == reflect.String {
			at = path + "." + key.String()
		}
		fill(value, text, at, keep)
		v.SetMapIndex(key, value)
	}
}

// Find returns what in text a terminal would obey, or "". Colours are allowed where styled says that the text has
// colours of virtctl's own, but never Blink.
func Find(text string, styled bool) string {
	if i := strings.Index(text, Blink); i >= 0 {
		return at(text, i)
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == 0x1b && styled {
			if n := colour(text[i:]); n > 0 {
				i += n
				continue
			}
		}
		if r == utf8.RuneError && size == 1 || r != '\n' && r != '\t' && obeyed(r) {
			return at(text, i)
		}
		i += size
	}
	return ""
}

// obeyed is written out here, and not taken from pkg/client/printable, which it tests.
func obeyed(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 ||
		strings.ContainsRune("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
}

func colour(text string) int {
	rest := strings.TrimLeft(strings.TrimPrefix(text, "\x1b["), "0123456789;:")
	if !strings.HasPrefix(text, "\x1b[") || !strings.HasPrefix(rest, "m") {
		return 0
	}
	return len(text) - len(rest) + 1
}

// at quotes the surroundings of a place.
func at(text string, i int) string {
	return fmt.Sprintf("%q", text[max(0, i-60):min(len(text), i+20)])
}
