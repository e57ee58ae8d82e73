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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/randfill"

	"github.com/virtkit/virtkit/pkg/names"
)

// elsewhere are functions that read what the manager's cache drops from an object which is not the cache's, with the
// reason. A function is written as package.name.
var elsewhere = map[string]string{
	"vmicontroller.computeContainer":     builds,
	"vmicontroller.Attachment":           builds,
	"vmicontroller.Provisioning":         builds,
	"vmicontroller.consoleLog":           builds,
	"vmicontroller.virtiofsdContainers":  builds,
	"migrationcontroller.Pod":            builds,
	"uploadcontroller.Pod":               builds,
	"exportcontroller.Pod":               builds,
	"migrationcontroller.withoutSecrets": builds,

	"migrationcontroller.plan":        builds,
	"vmicontroller.HostModelSelector": live,
	"resizecontroller.room":           live,
	"resizecontroller.shrinks":        live,
}

const (
	builds = "the pod is one that it makes"
	live   = "the pod was read from the API server"
)

// The manager's cache drops most of pods, claims and nodes, and what it drops reads as empty. No reconciler reads such
// a field, unless it has the object from elsewhere.
func TestStripped(t *testing.T) {
	dropped := map[string][]string{}
	for _, object := range []any{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.Node{}} {
		maps.Copy(dropped, droppedFields(t, object))
	}
	if !slices.Contains(dropped["PodSpec"], "Affinity") || slices.Contains(dropped["PodSpec"], "NodeName") {
		t.Fatalf("of a pod's spec, the cache drops %v", dropped["PodSpec"])
	}
	unused := maps.Clone(elsewhere)
	for _, p := range packagesHere(t) {
		for _, file := range p.files {
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := p.name + "." + f.Name.Name
				for _, read := range readsOf(f, p.info, dropped) {
					if _, ok := elsewhere[name]; ok {
						delete(unused, name)
						continue
					}
					t.Errorf("%s: %s reads %s, which the manager's cache drops (cache.go): keep it there, "+
						"read the object live, or "+
						"say in elsewhere where the function has it from", p.fset.Position(read.pos), name, read.field)
				}
			}
		}
	}
	for name := range unused {
		t.Errorf("%s reads nothing that the cache drops: elsewhere has a line too many", name)
	}
}

// droppedFields are the fields, by their struct's name, that the cache's transform empties in an object which has all.
func droppedFields(t *testing.T, object any) map[string][]string {
	t.Helper()
	randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(12).Funcs(
		// What slimPod keeps depends on names.
		func(c *corev1.Container, r randfill.Continue) {
			r.FillNoCustom(c)
			c.Args = []string{"--fence-after=1m"}
		},
		func(s *corev1.NodeStatus, r randfill.Continue) {
			r.FillNoCustom(s)
			s.Allocatable = corev1.ResourceList{names.ResourceKVM: resource.MustParse("1")}
		},
		func(c *corev1.PodCondition, r randfill.Continue) { r.FillNoCustom(c); c.Type = corev1.PodScheduled },
		func(c *corev1.NodeCondition, r randfill.Continue) { r.FillNoCustom(c); c.Type = corev1.NodeReady },
	).Fill(object)
	var transform func(any) (any, error)
	for kind, by := range cacheOptions().ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			transform = by.Transform
		}
	}
	kept, err := transform(object)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	compare(reflect.ValueOf(kept).Elem(), out)
	return out
}

// compare notes the empty fields of a pod's, claim's or node's structs, but for those of its metadata.
func compare(v reflect.Value, out map[string][]string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			continue
		}
		value := v.Field(i)
		if value.IsZero() {
			out[v.Type().Name()] = append(out[v.Type().Name()], field.Name)
			continue
		}
		for value.Kind() == reflect.Slice || value.Kind() == reflect.Pointer {
			if value.Kind() == reflect.Slice {
				value = value.Index(0)
			} else {
				value = value.Elem()
			}
		}
		if value.Kind() == reflect.Struct && strings.HasSuffix(value.Type().PkgPath(), "api/core/v1") {
			compare(value, out)
		}
	}
}

type read struct {
	pos   token.Pos
	field string
}

// readsOf are the places in a function that read one of the fields; to assign to one is none.
func readsOf(f *ast.FuncDecl, info *types.Info, fields map[string][]string) (out []read) {
	written := map[ast.Node]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				written[left] = true
			}
		case *ast.SelectorExpr:
			selection := info.Selections[n]
			if selection == nil || selection.Kind() != types.FieldVal || written[n] {
				return true
			}
			from := selection.Recv()
			if pointer, ok := from.Underlying().(*types.Pointer); ok {
				from = pointer.Elem()
			}
			named, ok := from.(*types.Named)
			if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "k8s.io/api/core/v1" {
				return true
			}
			if kind := named.Obj().Name(); slices.Contains(fields[kind], n.Sel.Name) {
				out = append(out, read{pos: n.Pos(), field: kind + "." + n.Sel.Name})
			}
		}
		return true
	})
	return out
}

// goPackage is a package of virt-controller's, with types.
type goPackage struct {
	name  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// packagesHere loads the packages of this directory, without their tests.
func packagesHere(t *testing.T) (out []goPackage) {
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
	type listed struct {
		ImportPath, Dir, Name, Export string
		GoFiles                       []string
	}
	var ours []listed
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
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(exports[path])
	})
	for _, p := range ours {
		one := goPackage{
			name: p.Name, fset: fset, info: &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}},
		}
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			one.files = append(one.files, parsed)
		}
		if _, err := (&types.Config{Importer: compiled}).Check(p.ImportPath, fset, one.files, one.info); err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}
