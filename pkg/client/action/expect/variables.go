package expect

import (
	"maps"
	"strconv"
)

// Check returns a *ParseError for the first statement that uses a variable which can have no value there: given has
// none for it, and no statement before it may set it. One of `on` may be carried out at any time after it was given, so
// any statement of the script may have set what it uses.
func (s *Script) Check(given map[string]string) error {
	ever, now := map[string]string{}, map[string]string{}
	maps.Copy(ever, given)
	maps.Copy(now, given)
	for i := range s.statements {
		s.statements[i].sets(ever)
	}
	for i := range s.statements {
		statement := &s.statements[i]
		known, user := now, statement
		if statement.do != nil {
			known, user = ever, statement.do
		}
		if _, err := user.argument.expand(known); err != nil {
			return &ParseError{s.file, statement.line, err}
		}
		statement.sets(now)
	}
	return nil
}

// sets adds the variables that a statement may give a value.
func (s *statement) sets(variables map[string]string) {
	if s.name != "" {
		variables[s.name] = ""
	}
	if s.pattern != nil {
		for i, name := range s.pattern.SubexpNames() {
			if i > 0 {
				variables[strconv.Itoa(i)] = ""
			}
			if name != "" {
				variables[name] = ""
			}
		}
	}
	if s.do != nil {
		s.do.sets(variables)
	}
}
