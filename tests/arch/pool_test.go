package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestPoolNamesAreTheSame fails where virt-local looks for the pool of its CSI driver by other names than the driver
// has: Go's internal directories keep the two programs, each a module of its own, from sharing them.
func TestPoolNamesAreTheSame(t *testing.T) {
	looks := constants(t, "../../cmd/virt-local/internal/csi/csi.go")
	has := constants(t, "../../cmd/virt-local-csi/internal/pool/open.go")
	for _, name := range []string{"poolDir", "poolVolumes", "poolImage"} {
		if looks[name] == "" || looks[name] != has[name] {
			t.Errorf("%s is %s in virt-local, and %s in its CSI driver", name, looks[name], has[name])
		}
	}
}

// constants returns the constants of a file that are literals, as written.
func constants(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			values := spec.(*ast.ValueSpec)
			for i, value := range values.Values {
				if literal, ok := value.(*ast.BasicLit); ok {
					out[values.Names[i].Name] = literal.Value
				}
			}
		}
	}
	return out
}
