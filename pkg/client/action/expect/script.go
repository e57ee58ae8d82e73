// Package expect runs scripts against a guest's console: send what a user would type, wait for what the guest answers.
// Parse reads a script, which is pure; Script.Run plays it on any stream and writes down what happened, a Transcript.
//
// A script has one statement a line; empty lines and lines that begin with # are nothing:
//
//	timeout 30s              how long each wait that follows may take
//	send "text\r"            type text; \r is the Enter key, $name and ${name} are variables
//	send-secret "$password"  the same, and the transcript does not show it
//	expect "text" [10s]      wait for text
//	expect /regexp/ [10s]    wait for a match; its groups become $1, $2 and, if named (?P<name>…), $name
//	expect eof [10s]         wait for the end of the stream, that is of the guest
//	on /regexp/ do STATEMENT whenever that is seen during a wait: send, send-secret, print, set or exit
//	set name "text"          give a variable a value
//	print "text"             write a line to the transcript, and to standard output when the user wants only that
//	exit N                   end the script with code N, 0 to 255
package expect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is what a wait may take when the script says nothing.
const DefaultTimeout = 30 * time.Second

// Bounds of a script, which may come from anywhere.
const (
	maxLine       = 64 << 10
	maxStatements = 10_000
	maxHandlers   = 100
)

// Script is a parsed script.
type Script struct {
	file       string
	statements []statement
}

// statement is one line. Which fields count depends on the verb.
type statement struct {
	verb string
	line int
	text string // as written

	argument template       // send, send-secret, set, print
	name     string         // set
	pattern  *regexp.Regexp // expect, on; nil in an expect is the end of the stream
	timeout  time.Duration  // timeout, expect; 0 in an expect is the script's
	code     int            // exit
	do       *statement     // on
}

// ParseError is a script that cannot be understood.
type ParseError struct {
	// File is the script's name, Line counts from 1.
	File string
	Line int
	Err  error
}

func (e *ParseError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Err) }

func (e *ParseError) Unwrap() error { return e.Err }

// Parse reads a script; file names it in errors, which are of type *ParseError or of reading.
func Parse(file string, r io.Reader) (*Script, error) {
	script := &Script{file: file}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	handlers, n := 0, 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		s, err := parseStatement(text, n)
		if err != nil {
			return nil, &ParseError{file, n, err}
		}
		if s.verb == "on" {
			handlers++
		}
		if handlers > maxHandlers || len(script.statements) == maxStatements {
			return nil,
				&ParseError{file, n, fmt.Errorf("more than %d statements, or %d of on", maxStatements, maxHandlers)}
		}
		script.statements = append(script.statements, *s)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &ParseError{file, n + 1, fmt.Errorf("a line of more than %d bytes", maxLine)}
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return script, nil
}

func parseStatement(text string, line int) (*statement, error) {
	verb, rest, _ := strings.Cut(text, " ")
	s, rest := &statement{verb: verb, line: line, text: text}, strings.TrimSpace(rest)
	var err error
	switch verb {
	case "send", "send-secret", "print":
		s.argument, rest, err = parseString(rest)
	case "set":
		name, value, _ := strings.Cut(rest, " ")
		if !variable.MatchString(name) {
			return nil, fmt.Errorf("%q is not a variable's name: letters, digits and _, and a letter first", name)
		}
		s.name = name
		s.argument, rest, err = parseString(strings.TrimSpace(value))
	case "timeout":
		s.timeout, rest, err = parseDuration(rest)
	case "exit":
		s.code, err = strconv.Atoi(rest)
		if err != nil || s.code < 0 || s.code > 255 {
			return nil, fmt.Errorf("exit needs a code from 0 to 255, not %q", rest)
		}
		rest = ""
	case "expect":
		if after, is := strings.CutPrefix(rest, "eof"); is {
			rest = strings.TrimSpace(after)
		} else if s.pattern, rest, err = parsePattern(rest); err != nil {
			return nil, err
		}
		if rest != "" && !strings.HasPrefix(rest, "#") {
			s.timeout, rest, err = parseDuration(rest)
		}
	case "on":
		if s.pattern, rest, err = parsePattern(rest); err != nil {
			return nil, err
		}
		what, is := strings.CutPrefix(rest, "do ")
		if !is {
			return nil, errors.New(`on needs a statement: on /pattern/ do send "…"`)
		}
		s.do, err = parseStatement(strings.TrimSpace(what), line)
		if err == nil && (s.do.verb == "on" || s.do.verb == "expect" || s.do.verb == "timeout") {
			err = fmt.Errorf("on cannot do %s; it can send, send-secret, print, set and exit", s.do.verb)
		}
		rest = ""
	default:
		return nil, fmt.Errorf("unknown statement %q; there are send, send-secret, expect, on, set, print, timeout "+
			"and exit", verb)
	}
	if err != nil {
		return nil, err
	}
	if rest != "" && !strings.HasPrefix(rest, "#") {
		return nil, fmt.Errorf("%q after the end of %s", rest, verb)
	}
	return s, nil
}

// parsePattern reads "text", 'text' or /regexp/ and returns what follows.
func parsePattern(text string) (*regexp.Regexp, string, error) {
	if !strings.HasPrefix(text, "/") {
		plain, rest, err := parseString(text)
		if err != nil {
			return nil, "", err
		}
		literal, err := plain.literal()
		if err == nil && literal == "" {
			err = errors.New("nothing to expect")
		}
		if err != nil {
			return nil, "", err
		}
		re, err := regexp.Compile(regexp.QuoteMeta(literal))
		return re, rest, err
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			re, err := regexp.Compile(strings.ReplaceAll(text[1:i], `\/`, `/`))
			if err == nil && re.MatchString("") {
				err = fmt.Errorf("/%s/ matches nothing at all, and so at once", text[1:i])
			}
			return re, strings.TrimSpace(text[i+1:]), err
		}
	}
	return nil, "", fmt.Errorf("no / at the end of %s", text)
}

func parseDuration(text string) (time.Duration, string, error) {
	word, rest, _ := strings.Cut(text, " ")
	d, err := time.ParseDuration(word)
	if n, numErr := strconv.Atoi(word); numErr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return 0, "", fmt.Errorf("%q is not a duration such as 30s or 2m", word)
	}
	return d, strings.TrimSpace(rest), nil
}
