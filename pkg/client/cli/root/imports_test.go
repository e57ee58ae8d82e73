package root

import (
	"os/exec"
	"strings"
	"testing"
)

// heavy are packages whose initialisers and tables would double the time and memory of every start: typed clients of
// all API groups, OpenAPI, kustomize. `virtctl version --client` is held to 11 ms and 37 MB.
var heavy = []string{
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "k8s.io/kubectl", "k8s.io/apiserver",
	"k8s.io/cli-runtime/pkg/genericclioptions", "k8s.io/cli-runtime/pkg/resource",
	"github.com/google/gnostic-models", "sigs.k8s.io/kustomize", "sigs.k8s.io/controller-runtime",
}

func TestImportsStayLight(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list",
		"-deps", "github.com/virtkit/virtkit/cmd/virtctl").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, bad := range heavy {
			if dep == bad || strings.HasPrefix(dep, bad+"/") {
				t.Errorf("virtctl links %s", dep)
			}
		}
	}
}
