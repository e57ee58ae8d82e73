package arch

import (
	"go/ast"
	"go/types"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/tests/gotypes"
)

// direct are the functions of virt-controller and virt-handler that write to the API server past frame.Writes, by file
// and function, and why they may.
var direct = map[string]string{
	// A dry run writes nothing.
	"pkg/controller/restorecontroller/apply.go: Reconciler.rehearse":        "r.Client.Create",
	"pkg/controller/snapshotcontroller/content_apply.go: Contents.rehearse": "r.Client.Create",
	// The answer is no object that the cache has.
	"pkg/controller/cdi/authorize.go: reviewer.CreateSar":                     "r.writer.Create",
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

// noted is the type whose writes are read back.
const noted = "github.com/virtkit/virtkit/pkg/service/frame.Writes"

// TestReconcilersReadTheirWrites keeps what a reconciler writes from being taken for what another wrote, or not seen at
// all, when the cache does not show it yet: frame.Writes knows.
func TestReconcilersReadTheirWrites(t *testing.T) {
	found := map[string]string{}
	for _, p := range gotypes.Load(t, "../..", "./pkg/controller/...", "./pkg/handler/...").Packages {
		for name, file := range p.Files {
			for _, declaration := range file.Decls {
				if writes := writesOf(declaration, p.Info); len(writes) > 0 {
					found[name+": "+nameOf(declaration)] = strings.Join(writes, " ")
				}
			}
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

// writesOf are the methods of clients that write, called or passed on, but for those of frame.Writes. A client's method
// takes a context first, whatever its name is.
func writesOf(in ast.Node, info *types.Info) []string {
	var out []string
	ast.Inspect(in, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || !verbs[selector.Sel.Name] {
			return true
		}
		method, ok := info.Uses[selector.Sel].(*types.Func)
		if !ok {
			return true
		}
		signature := method.Signature()
		if of := signature.Recv(); of == nil || strings.TrimPrefix(types.TypeString(of.Type(), nil), "*") == noted {
			return true
		}
		if in := signature.Params(); in.Len() > 1 && types.TypeString(in.At(0).Type(), nil) == "context.Context" {
			out = append(out, pathOf(selector))
		}
		return true
	})
	return out
}

// TestWritesOf: which uses of a client are found.
func TestWritesOf(t *testing.T) {
	program := gotypes.Load(t, "../..", "./pkg/controller/uploadcontroller")
	const text = `package planted

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

type reconciler struct {
	Client client.Client
	own    *frame.Writes
	writes client.Client
}

type both struct{ *frame.Writes }

func (r *reconciler) otherContext(groupCtx context.Context, o client.Object) error {
	return r.Client.Create(groupCtx, o)
}

func (r *reconciler) newContext(o client.Object) error { return r.Client.Delete(context.Background(), o) }

func (r *reconciler) fieldOfThatName(ctx context.Context, o client.Object) error { return r.writes.Create(ctx, o) }

func (r *reconciler) passedOn(do func(func(context.Context, client.Object, ...client.CreateOption) error)) {
	do(r.Client.Create)
}

func (r *reconciler) status(ctx context.Context, o client.Object) error { return r.Client.Status().Update(ctx, o) }

func (r *reconciler) noted(ctx context.Context, o client.Object) error { return r.own.Create(ctx, o) }

func embedded(ctx context.Context, b both, o client.Object) error { return b.Create(ctx, o) }

func (r *reconciler) reads(ctx context.Context, o client.Object) error {
	return r.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
}
`
	file, info := program.Planted(t, text)
	want := map[string]string{
		"reconciler.otherContext": "r.Client.Create", "reconciler.newContext": "r.Client.Delete",
		"reconciler.fieldOfThatName": "r.writes.Create", "reconciler.passedOn": "r.Client.Create",
		"reconciler.status": "r.Client.Status.Update",
	}
	for _, declaration := range file.Decls {
		name := nameOf(declaration)
		if got := strings.Join(writesOf(declaration, info), " "); got != want[name] {
			t.Errorf("%s writes by %q, want %q", name, got, want[name])
		}
	}
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
