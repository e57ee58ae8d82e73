// Package filter decides which rows a user wants to see, from one line of text:
//
//	web prod     each of these words is in what is shown, whatever its case
//	web !prod    the first word is in it, the second is not
//	"not ready"  these words are in it as they stand, with the space; the last quote may be missing
//	~wb          these letters are in it, in this order
//	^web-\d      a regular expression, when there is anything in it that makes it one; ^ and $ end a column
//	-l app=web   a label selector
//	! web prod   the opposite of the rest
package filter

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
)

// Filter matches rows. The zero value matches all.
type Filter struct {
	text string
	// inverse has the rows match that otherwise do not.
	inverse  bool
	selector labels.Selector
	// terms must all match.
	terms []term
}

// term is one thing that is, or with not is not, in what is shown: a word, letters, or a regular expression.
type term struct {
	not     bool
	word    string // lower case
	fuzzy   []rune
	pattern *regexp.Regexp
}

// flags have a regular expression match letters of both cases, and ^ and $ the ends of a column.
const flags = "(?im)"

// Parse reads a filter; its error says what is wrong with it, in a line.
func Parse(text string) (Filter, error) {
	rest := strings.TrimSpace(text)
	f := Filter{text: rest}
	if after, ok := strings.CutPrefix(rest, "!"); ok && opposite(after) {
		f.inverse, rest = true, strings.TrimSpace(after)
	}
	if after, ok := strings.CutPrefix(rest, "-l"); ok && (after == "" || after[0] == ' ' || after[0] == '=') {
		after = strings.TrimSpace(strings.TrimPrefix(after, "="))
		if after == "" {
			return Filter{}, errors.New("a label selector is missing, such as app=web")
		}
		selector, err := labels.Parse(after)
		if err != nil {
			return Filter{}, fmt.Errorf("not a label selector: %w", err)
		}
		f.selector = selector
		return f, nil
	}
	wanted, unwanted := split(rest)
	for _, part := range wanted {
		if err := f.add(part, false); err != nil {
			return Filter{}, err
		}
	}
	for _, part := range unwanted {
		if err := f.add(part, true); err != nil {
			return Filter{}, err
		}
	}
	return f, nil
}

// opposite reports whether a ! before the rest is about all of it, not about its first word.
func opposite(rest string) bool {
	trimmed := strings.TrimLeft(rest, " ")
	return trimmed != "" && (trimmed != rest || strings.HasPrefix(trimmed, "-l"))
}

// split takes the parts of a filter apart: what is in quotes, and what follows a ! to the next space, are parts; all
// else is one.
func split(text string) (wanted, unwanted []part) {
	var plain []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimLeft(rest, " ") {
		body, not := strings.CutPrefix(rest, "!")
		p := part{}
		if inside, quoted := strings.CutPrefix(body, `"`); quoted {
			p.quoted = true
			p.text, rest, _ = strings.Cut(inside, `"`)
		} else {
			p.text, rest, _ = strings.Cut(body, " ")
		}
		switch {
		case p.text == "":
		case not:
			unwanted = append(unwanted, p)
		case p.quoted:
			wanted = append(wanted, p)
		default:
			plain = append(plain, p.text)
		}
	}
	if len(plain) > 0 {
		wanted = append(wanted, part{text: strings.Join(plain, " ")})
	}
	return wanted, unwanted
}

// part is a piece of a filter; what is in quotes is taken as it stands.
type part struct {
	text   string
	quoted bool
}

// add makes terms of a part.
func (f *Filter) add(p part, not bool) error {
	switch {
	case p.quoted:
		f.terms = append(f.terms, term{not: not, word: strings.ToLower(p.text)})
	case p.text[0] == '~':
		letters := []rune(strings.ToLower(strings.ReplaceAll(p.text[1:], " ", "")))
		f.terms = append(f.terms, term{not: not, fuzzy: letters})
	case strings.ContainsAny(p.text, `^$.*+?()[]{}|\`):
		pattern, err := regexp.Compile(flags + p.text)
		if err != nil {
			var wrong *syntax.Error
			if errors.As(err, &wrong) { // without Go's words, for which a line has no room
				return fmt.Errorf("not a regular expression: %s: `%s`", wrong.Code,
					strings.TrimPrefix(wrong.Expr, flags))
			}
			return fmt.Errorf("not a regular expression: %w", err)
		}
		f.terms = append(f.terms, term{not: not, pattern: pattern})
	default:
		for _, word := range strings.Fields(strings.ToLower(p.text)) {
			f.terms = append(f.terms, term{not: not, word: word})
		}
	}
	return nil
}

// String returns the text that made the filter.
func (f Filter) String() string { return f.text }

// Empty reports whether everything matches.
func (f Filter) Empty() bool { return f.terms == nil && f.selector == nil }

// Labels reports whether it is a label selector.
func (f Filter) Labels() bool { return f.selector != nil }

// Match reports whether a row is wanted: text is what is shown of it, lower case or not, a line for each column.
func (f Filter) Match(text string, set map[string]string) bool {
	switch {
	case f.Empty():
		return true
	case f.selector != nil:
		return f.selector.Matches(labels.Set(set)) != f.inverse
	}
	whole := strings.ReplaceAll(text, "\n", " ")
	lower := strings.ToLower(whole)
	for i := range f.terms {
		if f.terms[i].match(text, whole, lower) == f.terms[i].not {
			return f.inverse
		}
	}
	return !f.inverse
}

// Excludes reports whether a row that need not match by itself, such as one below a row that does, is unwanted
// nevertheless: a word that must not be in it is.
func (f Filter) Excludes(text string, set map[string]string) bool {
	if f.inverse {
		return !f.Match(text, set)
	}
	whole := strings.ReplaceAll(text, "\n", " ")
	lower := strings.ToLower(whole)
	return slices.ContainsFunc(f.terms, func(t term) bool { return t.not && t.match(text, whole, lower) })
}

// match reports whether the term is in one of the columns, or in whole, which has them in one line, and lower in lower
// case.
func (t *term) match(columns, whole, lower string) bool {
	switch {
	case t.pattern != nil:
		return t.pattern.MatchString(columns) || t.pattern.MatchString(whole)
	case t.fuzzy != nil:
		return subsequence(t.fuzzy, whole)
	}
	return strings.Contains(lower, t.word)
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
