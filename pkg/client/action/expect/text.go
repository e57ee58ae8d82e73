package expect

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/console"
)

// template is a string with variables: literal text, then a variable's name, and so on in turn.
type template []string

var (
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference = regexp.MustCompile(`^(?:\{([A-Za-z0-9_]+)\}|([A-Za-z_][A-Za-z0-9_]*|[0-9]))`)
)

// parseString reads a string in double quotes, with C's escapes and variables, or one in single quotes, which is
// taken as it is, and returns what follows.
func parseString(text string) (template, string, error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return nil, "", fmt.Errorf(`a text in quotes is missing: "…"`)
	}
	if text[0] == '\'' {
		end := strings.IndexByte(text[1:], '\'')
		if end < 0 {
			return nil, "", errors.New("no ' at the end of the text")
		}
		return template{text[1 : 1+end]}, strings.TrimSpace(text[end+2:]), nil
	}
	var out template
	start := 1
	literal := func(end int) (string, error) {
		value, err := console.Unescape(text[start:end])
		return string(value), err
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if i+1 < len(text) && text[i+1] == '$' {
				// A dollar that is none of a variable; Unescape does not know it.
				before, err := literal(i)
				if err != nil {
					return nil, "", err
				}
				out, start = append(out, before+"$", ""), i+2
			}
			i++
		case '"':
			last, err := literal(i)
			return append(out, last), strings.TrimSpace(text[i+1:]), err
		case '$':
			m := reference.FindStringSubmatch(text[i+1:])
			if m == nil {
				return nil, "", errors.New(`$ is followed by no variable; write \$ for a dollar`)
			}
			before, err := literal(i)
			if err != nil {
				return nil, "", err
			}
			out = append(out, before, m[1]+m[2])
			i += len(m[0])
			start = i + 1
		}
	}
	return nil, "", errors.New(`no " at the end of the text`)
}

// expand puts in the variables; one that has no value is an error.
func (t template) expand(variables map[string]string) (string, error) {
	var out strings.Builder
	for i, part := range t {
		if i%2 == 0 {
			out.WriteString(part)
			continue
		}
		if part == "" {
			continue
		}
		value, known := variables[part]
		if !known && !variable.MatchString(part) {
			return "", fmt.Errorf("$%s has no value: no expect has had such a group", part)
		}
		if !known {
			return "", fmt.Errorf("variable $%s has no value; give it one with --var %s=… or by a group of an "+
				"expect", part, part)
		}
		out.WriteString(value)
	}
	return out.String(), nil
}

// literal returns the text of a template without variables.
func (t template) literal() (string, error) {
	for i, part := range t {
		if i%2 == 1 && part != "" {
			return "", fmt.Errorf("$%s: an expect takes no variables", part)
		}
	}
	return t.expand(nil)
}
