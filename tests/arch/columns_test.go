package arch

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how wide a line of code may be; a tab counts four.
const columns = 120

// TestColumns holds that lines of code are read without scrolling. Tables of tests, generated files, raw strings and
// what linters read may be wider.
func TestColumns(t *testing.T) {
	for _, name := range sources(t, "../..") {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\n// Code generated ")) || bytes.HasPrefix(text, []byte("// Code generated ")) {
			continue
		}
		raw := rawLines(text)
		for i, line := range strings.Split(string(text), "\n") {
			width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if width > columns && !raw[i+1] && !strings.Contains(line, "//nolint:") && !strings.HasPrefix(line, "//go:") {
				t.Errorf("%s:%d has %d columns; %d are the most", name, i+1, width, columns)
			}
		}
	}
}

// rawLines are the lines, counted from one, on which there is a part of a raw string.
func rawLines(text []byte) map[int]bool {
	lines := map[int]bool{}
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
			for i := range strings.Count(literal, "\n") + 1 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}
