package arch

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

// program has packages of this module with their types.
type program struct {
	fset     *token.FileSet
	imports  types.Importer
	packages []typed
}

// typed is a package's files, by their paths in the repository, without tests.
type typed struct {
	files map[string]*ast.File
	info  *types.Info
}

// load compiles what the patterns match, as the go command reads them in the repository's root.
func load(t *testing.T, patterns ...string) *program {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly"}
	cmd := exec.Command("go", append(arguments, patterns...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		DepOnly                 bool
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
	out := &program{fset: token.NewFileSet()}
	out.imports = importer.ForCompiler(out.fset, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(compiled[path])
	})
	for _, p := range ours {
		one := typed{files: map[string]*ast.File{}}
		var files []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			parsed, err := parser.ParseFile(out.fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			short, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			one.files[filepath.ToSlash(short)] = parsed
			files = append(files, parsed)
		}
		one.info = out.check(t, p.ImportPath, files...)
		out.packages = append(out.packages, one)
	}
	return out
}

// check finds what the names in a package's files are.
func (p *program) check(t *testing.T, path string, files ...*ast.File) *types.Info {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: p.imports}).Check(path, p.fset, files, info); err != nil {
		t.Fatal(err)
	}
	return info
}
