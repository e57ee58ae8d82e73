package virtapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// The values that docs/api-surface.md lists of a restore's and a clone's policies are those that admission lets pass.
func TestPoliciesAreThoseOfTheSurface(t *testing.T) {
	objects := map[string]struct {
		path string
		with func(more string) string
	}{
		"VirtualMachineRestore": {restoresPath, restoreWith}, "VirtualMachineClone": {clonesPath, cloneWith},
	}
	checked := 0
	for _, kind := range surface.Kinds() {
		object, ok := objects[kind.Name]
		if !ok {
			continue
		}
		for _, f := range kind.Fields {
			if !strings.HasSuffix(f.Path, "Policy") {
				continue
			}
			for _, value := range slices.Concat(f.Only, []string{"Nonsense"}) {
				checked++
				got := ask(t, object.path, "", object.with(", "+f.Path+": "+value), "")
				if got.Allowed != (value != "Nonsense") {
					t.Errorf("%s: %s: %s: allowed %t, %+v", kind.Name, f.Path, value, got.Allowed, got.Result)
				}
			}
		}
	}
	if checked < 12 {
		t.Errorf("only %d values are checked", checked)
	}
}
