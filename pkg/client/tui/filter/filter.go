// Package filter decides which rows a user wants to see, from one line of text:
//
//	web prod    each of these words is in what is shown, whatever its case
//	~wb         these letters are in it, in this order
//	^web-\d     a regular expression, when there is anything in it that makes it one
//	-l app=web  a label selector
//	!web        the opposite of the rest
package filter

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
)

// Filter matches rows. The zero value matches all.
type Filter struct {
	text     string
	inverse  bool
	words    []string
	fuzzy    []rune
	pattern  *regexp.Regexp
	selector labels.Selector
}

// Parse reads a filter; its error says what is wrong with it, in a line.
func Parse(text string) (Filter, error) {
	f := Filter{text: text}
	rest := strings.TrimSpace(text)
	if after, ok := strings.CutPrefix(rest, "!"); ok {
		f.inverse, rest = true, strings.TrimSpace(after)
	}
	switch after, ok := strings.CutPrefix(rest, "-l"); {
	case rest == "":
		f.inverse = false
	case ok && (after == "" || after[0] == ' ' || after[0] == '='):
		selector, err := labels.Parse(strings.TrimLeft(after, " ="))
		if err != nil {
			return Filter{}, fmt.Errorf("not a label selector: %w", err)
		}
		f.selector = selector
	case rest[0] == '~':
		f.fuzzy = []rune(strings.ToLower(strings.ReplaceAll(rest[1:], " ", "")))
	case strings.ContainsAny(rest, `^$.*+?()[]{}|\`):
		pattern, err := regexp.Compile("(?i)" + rest)
		if err != nil {
			var wrong *syntax.Error
			if errors.As(err, &wrong) { // without Go's words, for which a line has no room
				return Filter{}, fmt.Errorf("not a regular expression: %s: `%s`", wrong.Code, wrong.Expr)
			}
			return Filter{}, fmt.Errorf("not a regular expression: %w", err)
		}
		f.pattern = pattern
	default:
		f.words = strings.Fields(strings.ToLower(rest))
	}
	return f, nil
}

// String returns the text that made the filter.
func (f Filter) String() string { return f.text }

// Empty reports whether everything matches.
func (f Filter) Empty() bool {
	return f.words == nil && f.fuzzy == nil && f.pattern == nil && f.selector == nil
}

// Match reports whether a row is wanted: text is what is shown of it, lower case or not.
func (f Filter) Match(text string, set map[string]string) bool {
	switch {
	case f.selector != nil:
		return f.selector.Matches(labels.Set(set)) != f.inverse
	case f.pattern != nil:
		return f.pattern.MatchString(text) != f.inverse
	case f.words != nil:
		return containsAll(strings.ToLower(text), f.words) != f.inverse
	case f.fuzzy != nil:
		return subsequence(f.fuzzy, text) != f.inverse
	}
	return true
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// subsequence reports whether all letters are in text in their order.
func subsequence(letters []rune, text string) bool {
	for _, r := range text {
		if len(letters) == 0 {
			return true
		}
		if unicode.ToLower(r) == letters[0] {
			letters = letters[1:]
		}
	}
	return len(letters) == 0
}
