package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// direct are the functions of virt-controller and virt-handler that write to the API server past frame.Writes, by file
// and function, and why they may.
var direct = map[string]string{
	// A dry run writes nothing.
	"pkg/controller/restorecontroller/apply.go: Reconciler.rehearse":        "r.Client.Create",
	"pkg/controller/snapshotcontroller/content_apply.go: Contents.rehearse": "r.Client.Create",
	// The answer is no object that the cache has.
	"pkg/controller/workloadupdatecontroller/reconciler.go: Reconciler.evict": "r.Client.SubResource.Create",
	// The pod is read past the cache, which does not have its resources.
	"pkg/controller/resizecontroller/reconciler.go: Reconciler.resize": "r.Client.SubResource.Patch",
	// No reconciler in the frame, and what is written is read past the cache.
	"pkg/controller/certificates/inject.go: Rotator.inject":     "api.Patch",
	"pkg/controller/certificates/rotator.go: Rotator.forget":    "r.Client.CoreV1.Secrets.Delete",
	"pkg/controller/certificates/store.go: Rotator.writeBundle": "api.Create api.Patch",
	"pkg/controller/certificates/store.go: Rotator.writeSecret": "api.Create api.Patch",
	"pkg/controller/lease.go: lease.Update":                     "l.Interface.Update",
	"pkg/controller/lease.go: lease.release":                    "l.Update",
	"pkg/handler/nodestatus/node.go: Heartbeat.write":           "h.Nodes.Patch",
	// Nobody here reads it back.
	"pkg/handler/progress.go: Reconciler.writeProgress": "r.Live.Patch",
}

// verbs are the methods by which clients write.
var verbs = map[string]bool{
	"Apply": true, "Create": true, "Delete": true, "DeleteAllOf": true, "Patch": true, "Update": true,
}

// TestReconcilersReadTheirWrites keeps what a reconciler writes from being taken for what another wrote, or not seen at
// all, when the cache does not show it yet: frame.Writes knows.
func TestReconcilersReadTheirWrites(t *testing.T) {
	found := map[string]string{}
	for _, room := range []string{"pkg/controller", "pkg/handler"} {
		err := filepath.WalkDir(filepath.Join("../..", room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declaration := range parsed.Decls {
				if writes := writesOf(declaration); len(writes) > 0 {
					where := strings.TrimPrefix(path, "../../") + ": " + nameOf(declaration)
					found[where] = strings.Join(writes, " ")
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for where, writes := range found {
		if direct[where] != writes {
			t.Errorf("%s writes by %s: write by frame.Writes, or, if it is never read back from the cache, say so "+
				"there and in tests/arch", where, writes)
		}
	}
	for where, writes := range direct {
		if found[where] == "" {
			t.Errorf("%s does not write by %s any more: take it from the list in tests/arch", where, writes)
		}
	}
}

// writesOf are the calls of clients' methods that write, but for those of a field or variable named writes.
func writesOf(in ast.Node) []string {
	var out []string
	ast.Inspect(in, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !verbs[method.Sel.Name] {
			return true
		}
		on := pathOf(method.X)
		context, ok := call.Args[0].(*ast.Ident)
		if ok && context.Name == "ctx" && !strings.HasSuffix("."+strings.ToLower(on), ".writes") {
			out = append(out, on+"."+method.Sel.Name)
		}
		return true
	})
	return out
}

// pathOf is a chain of fields and calls, without arguments.
func pathOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return pathOf(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return pathOf(e.Fun)
	}
	return "?"
}
