package input

import (
	"strconv"
	"strings"
)

// letters are the keys that end in a letter: cursor keys, Home and End, F1 to F4.
var letters = map[byte]Key{
	'A': Up, 'B': Down, 'C': Right, 'D': Left, 'F': End, 'H': Home,
	'P': F1, 'Q': F1 + 1, 'R': F1 + 2, 'S': F1 + 3,
}

// numbers are the keys that end in a tilde.
var numbers = map[int]Key{
	1: Home, 2: Insert, 3: Delete, 4: End, 5: PageUp, 6: PageDown, 7: Home, 8: End,
	11: F1, 12: F1 + 1, 13: F1 + 2, 14: F1 + 3, 15: F1 + 4, 17: F1 + 5, 18: F1 + 6, 19: F1 + 7, 20: F1 + 8, 21: F1 + 9,
	23: F1 + 10, 24: F1 + 11, 29: Menu,
}

// codes are the keys of kitty's protocol that have no character.
var codes = map[int]Key{
	9: Tab, 13: Enter, 27: Escape, 127: Backspace,
	57358: CapsLock, 57359: ScrollLock, 57360: NumLock, 57361: PrintScreen, 57362: Pause, 57363: Menu,
	57414: Enter, 57417: Left, 57418: Right, 57419: Up, 57420: Down, 57421: PageUp, 57422: PageDown,
	57423: Home, 57424: End,
	57425: Insert, 57426: Delete,
}

// keypad are kitty's keypad keys that write a character, from 57399 on.
const keypad = "0123456789./*-+\x00="

// csi decodes CSI parameters final; 0 bytes mean that more must come.
func csi(b []byte, final bool) ([]Event, int) {
	end := 2
	for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
		if b[end] < 0x20 {
			return nil, end // broken off
		}
		end++
	}
	if end == len(b) {
		return nil, 0
	}
	// The Linux console's F1 to F5 are CSI [ A to E.
	if b[end] == '[' && end == 2 {
		if len(b) == 3 {
			if final {
				return nil, 3
			}
			return nil, 0
		}
		if k := b[3]; k >= 'A' && k <= 'E' {
			return []Event{{Key: F1 + Key(k-'A')}}, 4
		}
		return nil, 4
	}
	parameters, letter := string(b[2:end]), b[end]
	return sequence(parameters, letter), end + 1
}

func sequence(parameters string, letter byte) []Event {
	if rest, ok := strings.CutPrefix(parameters, "<"); ok {
		return mouse(rest, letter)
	}
	if strings.ContainsAny(parameters, "?>=") {
		return nil // an answer that came late
	}
	fields := strings.Split(parameters, ";")
	modifiers, released := held(fields)
	if released {
		return nil
	}
	number := first(fields[0])
	e := Event{Modifiers: modifiers}
	switch letter {
	case 'u':
		return kitty(number, e)
	case '~':
		if number == 200 {
			return []Event{{Paste: pasteBegins}}
		}
		if number == 27 && len(fields) == 3 { // xterm's modifyOtherKeys: 27 ; modifiers ; code
			return kitty(first(fields[2]), e)
		}
		e.Key = numbers[number]
	case 'Z':
		e.Key = Tab
		e.Modifiers |= Shift
	default:
		e.Key = letters[letter]
	}
	if e.Key == None {
		return nil
	}
	return []Event{e}
}

// kitty returns the event of a key by its code in kitty's keyboard protocol.
func kitty(code int, e Event) []Event {
	switch key, named := codes[code]; {
	case named:
		e.Key = key
	case code >= 57364 && code < 57364+24:
		e.Key = F(code - 57364 + 1)
	case code >= 57399 && code < 57399+len(keypad) && keypad[code-57399] != 0:
		e.Rune = rune(keypad[code-57399])
	case code < ' ' || code > 0x10ffff || code >= 57344 && code <= 63743:
		return nil
	default:
		e.Rune = rune(code)
		if e.Modifiers&Shift != 0 && e.Rune >= 'a' && e.Rune <= 'z' {
			e.Rune -= 'a' - 'A'
		}
	}
	return []Event{e}
}

// held reads the second parameter: one more than the modifiers, and after a colon what happened to the key.
func held(fields []string) (Modifiers, bool) {
	if len(fields) < 2 {
		return 0, false
	}
	text, event, _ := strings.Cut(fields[1], ":")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 256 {
		return 0, event == "3"
	}
	bits := n - 1
	m := Modifiers(bits & 15)
	if bits&32 != 0 { // meta
		m |= Alt
	}
	return m, event == "3"
}

// first returns a parameter's number, before its colon.
func first(field string) int {
	text, _, _ := strings.Cut(field, ":")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// mouse decodes an SGR report: button ; column ; row, M for pressed and m for released.
func mouse(parameters string, letter byte) []Event {
	fields := strings.Split(parameters, ";")
	if len(fields) != 3 || letter != 'M' && letter != 'm' {
		return nil
	}
	code, column, row := first(fields[0]), first(fields[1]), first(fields[2])
	if column < 1 || row < 1 {
		return nil
	}
	e := Event{Mouse: true, Column: column - 1, Row: row - 1, Down: letter == 'M', Motion: code&32 != 0}
	switch {
	case code&64 != 0 && code&3 < 2:
		e.Button = 4 + code&3
	case code&64 != 0:
		return nil // a wheel to the side
	case code&3 < 3:
		e.Button = 1 + code&3
	default:
		e.Down = false
	}
	return []Event{e}
}
