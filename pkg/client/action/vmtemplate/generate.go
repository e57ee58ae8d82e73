package vmtemplate

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Characters of an expression.
const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	symbols = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
)

// maxGenerated bounds what one range of an expression makes, characters.
const maxGenerated = 255

// expression is a range of characters and how many of them: [a-z0-9]{8}.
var expression = regexp.MustCompile(`\[([a-zA-Z0-9\\-]+)\]\{(\w+)\}`)

// classes are the characters of \w, \d, \a and \A.
var classes = map[byte]string{'w': letters + digits + "_", 'd': digits, 'a': letters + digits, 'A': symbols}

// generate replaces each range of an expression by random characters of it; what is around them stays.
func generate(from string, random *rand.Rand) (string, error) {
	if !expression.MatchString(from) {
		return "", fmt.Errorf("%q has no range with a length, such as [a-z0-9]{8}", from)
	}
	var failed error
	out := expression.ReplaceAllStringFunc(from, func(match string) string {
		parts := expression.FindStringSubmatch(match)
		n, err := strconv.Atoi(parts[2])
		if err != nil || n < 1 || n > maxGenerated {
			failed = fmt.Errorf("%s: the length is not from 1 to %d", match, maxGenerated)
			return ""
		}
		characters, err := alphabet(parts[1])
		if err != nil {
			failed = fmt.Errorf("%s: %w", match, err)
			return ""
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = characters[random.IntN(len(characters))]
		}
		return string(b)
	})
	return out, failed
}

// alphabet lists the characters of a range, each once.
func alphabet(text string) ([]byte, error) {
	var out []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
			if i == len(text) || classes[text[i]] == "" {
				return nil, fmt.Errorf(`\ is followed by none of w, d, a and A`)
			}
			out = append(out, classes[text[i]]...)
		case i+2 < len(text) && text[i+1] == '-':
			all := letters + digits
			first, last := strings.IndexByte(all, c), strings.IndexByte(all, text[i+2])
			if first < 0 || last < first {
				return nil, fmt.Errorf("%s is no range", text[i:i+3])
			}
			out = append(out, all[first:last+1]...)
			i += 2
		case c == '-':
			return nil, fmt.Errorf("- has no letter or digit on each side")
		default:
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// seed returns a seed from the system's generator of random numbers.
func seed() (out [32]byte) {
	_, _ = cryptorand.Read(out[:]) // never fails, or ends the program (crypto/rand)
	return out
}
