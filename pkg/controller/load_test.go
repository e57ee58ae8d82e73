package controller

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

// goPackage is a package with types.
type goPackage struct {
	name  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// listed is a package as `go list` has it.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
}

// loader gives packages their types, by what they import as it is compiled.
type loader struct {
	fset     *token.FileSet
	importer types.Importer
	// ours are the packages of this directory and below.
	ours []listed
}

func load(t *testing.T) *loader {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Name,GoFiles,Export", "./...")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	l := &loader{fset: token.NewFileSet()}
	exports := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Dir == here || strings.HasPrefix(p.Dir, here+string(filepath.Separator)) {
			l.ours = append(l.ours, p)
		}
	}
	l.importer = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(exports[path])
	})
	return l
}

// here returns virt-controller's packages, without their tests.
func (l *loader) here(t *testing.T) (out []goPackage) {
	t.Helper()
	for _, p := range l.ours {
		sources := map[string]any{}
		for _, file := range p.GoFiles {
			sources[filepath.Join(p.Dir, file)] = nil
		}
		out = append(out, l.check(t, p.ImportPath, sources))
	}
	return out
}

// check gives a package its types. Its files are by name; nil stands for the file's own text.
func (l *loader) check(t *testing.T, path string, sources map[string]any) goPackage {
	t.Helper()
	p := goPackage{fset: l.fset, info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}}
	for name, text := range sources {
		parsed, err := parser.ParseFile(l.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files, p.name = append(p.files, parsed), parsed.Name.Name
	}
	if _, err := (&types.Config{Importer: l.importer}).Check(path, l.fset, p.files, p.info); err != nil {
		t.Fatal(err)
	}
	return p
}
