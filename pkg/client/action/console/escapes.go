package console

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// simple are the escapes of one letter, C's and \e for the escape key.
var simple = map[byte]byte{
	'a': '\a', 'b': '\b', 'e': 0x1b, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
	'\\': '\\', '"': '"', '\'': '\'', '?': '?',
}

// Unescape reads C's escapes: \r is the Enter key, \t, \n, \e (the escape key), \\, \xHH, up to three octal digits,
// \uHHHH and \UHHHHHHHH. An unknown one is an error.
func Unescape(text string) ([]byte, error) {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		i++
		if i == len(text) {
			return nil, fmt.Errorf(`%q ends in a backslash; write \\ for one`, text)
		}
		if b, known := simple[text[i]]; known {
			out = append(out, b)
			continue
		}
		more, n, err := number(out, text[i:])
		if err != nil {
			return nil, err
		}
		out = more
		i += n - 1
	}
	return out, nil
}

// number reads an escape that is a number from the beginning of text, and returns its length.
func number(out []byte, text string) ([]byte, int, error) {
	var digits int
	base, from := 16, 1
	switch c := text[0]; {
	case c >= '0' && c <= '7':
		digits, base, from = 3, 8, 0
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	default:
		return nil, 0, fmt.Errorf(`unknown escape \%c; there are \r \n \t \e \a \b \f \v \\ \" \xHH \NNN \uHHHH`, c)
	}
	end := from
	for end < len(text) && end < from+digits && isDigit(text[end], base) {
		end++
	}
	n, err := strconv.ParseUint(text[from:end], base, 32)
	rune := text[0] == 'u' || text[0] == 'U'
	switch {
	case err != nil, rune && (end-from < digits || n > utf8.MaxRune), !rune && n > 0xff:
		return nil, 0, fmt.Errorf(`bad escape \%s`, text[:end])
	case rune:
		return utf8.AppendRune(out, int32(n)), end, nil
	}
	return append(out, byte(n)), end, nil
}

func isDigit(c byte, base int) bool {
	_, err := strconv.ParseUint(string(c), base, 8)
	return err == nil
}
