// Package gotypes gives tests the syntax of this module's packages together with its types, for tests that look for a
// mistake in the code.
package gotypes

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Program has packages of this module with their types.
type Program struct {
	Packages []Package

	files   *token.FileSet
	imports types.Importer
}

// Package has a package's files, by their paths in the repository, without tests.
type Package struct {
	Name  string
	Files map[string]*ast.File
	Info  *types.Info
}

// Load compiles what the patterns match, as the go command reads them in the repository's root.
func Load(t *testing.T, root string, patterns ...string) *Program {
	t.Helper()
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Name,GoFiles,Export,DepOnly"}
	cmd := exec.Command("go", append(arguments, patterns...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath, Dir, Name, Export string
		GoFiles                       []string
		DepOnly                       bool
	}
	var ours []listed
	compiled := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		compiled[p.ImportPath] = p.Export
		if !p.DepOnly {
			ours = append(ours, p)
		}
	}
	if len(ours) == 0 {
		t.Fatalf("nothing is in %q", patterns)
	}
	out := &Program{files: token.NewFileSet()}
	out.imports = importer.ForCompiler(out.files, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(compiled[path])
	})
	for _, p := range ours {
		one := Package{Name: p.Name, Files: map[string]*ast.File{}}
		var files []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			parsed := out.parse(t, path, nil)
			short, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			one.Files[filepath.ToSlash(short)] = parsed
			files = append(files, parsed)
		}
		one.Info = out.check(t, p.ImportPath, files...)
		out.Packages = append(out.Packages, one)
	}
	return out
}

// Planted returns the file of that text with its types. It may import what the program's packages import.
func (p *Program) Planted(t *testing.T, text string) (*ast.File, *types.Info) {
	t.Helper()
	file := p.parse(t, "planted.go", text)
	return file, p.check(t, "planted", file)
}

// Position returns where in a file something is.
func (p *Program) Position(at token.Pos) token.Position { return p.files.Position(at) }

func (p *Program) parse(t *testing.T, path string, text any) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(p.files, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// check finds what the names and expressions in a package's files are.
func (p *Program) check(t *testing.T, path string, files ...*ast.File) *types.Info {
	t.Helper()
	info := &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Types: map[ast.Expr]types.TypeAndValue{},
	}
	if _, err := (&types.Config{Importer: p.imports}).Check(path, p.files, files, info); err != nil {
		t.Fatal(err)
	}
	return info
}
