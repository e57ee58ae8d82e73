package arch

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// columns is how wide a line of code may be; a tab counts four.
	columns = 120
	// besides is how much of a line that is too wide for its raw strings may stand outside of them.
	besides = 60
)

// TestColumns holds that lines of code are read without scrolling, in tests too. Generated files and what linters read
// may be wider. So may a line whose raw string makes it so, for a golden text is not cut: but then little else is on
// that line.
func TestColumns(t *testing.T) {
	for _, name := range sources(t, "../..") {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\n// Code generated ")) || bytes.HasPrefix(text, []byte("// Code generated ")) {
			continue
		}
		raw := rawColumns(text)
		for i, line := range strings.Split(string(text), "\n") {
			wide := width(line)
			if wide <= columns || strings.Contains(line, "//nolint:") || strings.HasPrefix(line, "//go:") {
				continue
			}
			// Blanks that align the values of a table are not the line's own.
			outside := width(alignment.ReplaceAllString(line, ": ")) - raw[i+1]
			switch {
			case raw[i+1] == 0:
				t.Errorf("%s:%d has %d columns; %d are the most", name, i+1, wide, columns)
			case outside > besides:
				t.Errorf("%s:%d has %d columns, %d of them outside of raw strings; break the line before or after them",
					name, i+1, wide, outside)
			}
		}
	}
}

var alignment = regexp.MustCompile(`: {2,}`)

func width(text string) int {
	return utf8.RuneCountInString(text) + 3*strings.Count(text, "\t")
}

// rawColumns says for each line, counted from one, how many of its columns are of raw strings.
func rawColumns(text []byte) map[int]int {
	lines := map[int]int{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && strings.HasPrefix(literal, "`") {
			for i, part := range strings.Split(literal, "\n") {
				lines[file.Line(pos)+i] += width(part)
			}
		}
	}
}
