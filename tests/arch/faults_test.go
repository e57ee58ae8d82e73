package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// victims are what fails, or comes between, in the tables of tests/e2e/snapshot_faults_test.go, in the words of
// docs/snapshots.md.
var victims = map[string]string{
	"controller": "virt-controller", "handler": "virt-handler", "api": "virt-api", "csi controller": "CSI's controller",
	"csi node": "controller and node", "agent": "the agent", "control plane": "the control plane",
	"launcher": "the launcher", "QEMU": "QEMU", "second": "a second snapshot", "change": "a change",
	"migrate": "a migration", "restart": "a restart", "delete VM": "a deleted VM", "cancel": "cancel",
	"deadline": "deadline", "controller away": "away until the deadline", "both away": "alone or with virt-handler",
	"name taken": "a name that is taken", "start": "a start",
	"snapshot gone": "a deleted snapshot", "cut gone": "or VolumeSnapshot",
}

// stages are those that the page has among the stages: nothing else comes between there.
var stages = map[string]string{
	"agent hangs": "an agent that hangs", "agent freezes nothing": "or lies", "nothing": "",
}

// docs/snapshots.md says of each table what is in it, no less and no more.
func TestSnapshotFaultsAreThosePublished(t *testing.T) {
	page, err := os.ReadFile("../../docs/snapshots.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../e2e/snapshot_faults_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for table, row := range map[string]string{
		"snapshotFaults": "a snapshot", "memoryFaults": "one with memory", "resumeFaults": "a resume",
		"cloneFaults": "a clone", "restoreFaults": "a restore",
	} {
		_, text, found := strings.Cut(string(page), "\n| "+row+" | ")
		text, _, _ = strings.Cut(text, "\n")
		at, between, two := strings.Cut(text, " | ")
		has := victimsOf(t, file, table)
		if !found || !two || len(has) == 0 {
			t.Errorf("%s has %d victims, and the page the row %q", table, len(has), text)
			continue
		}
		for victim := range has {
			words, known := victims[victim]
			stage, held := stages[victim]
			if !known && !held || known && !strings.Contains(between, words) || held && !strings.Contains(at, stage) {
				t.Errorf("%s has %q, and docs/snapshots.md does not say so of %s", table, victim, row)
			}
		}
		for victim, words := range victims {
			if !has[victim] && strings.Contains(between, words) {
				t.Errorf("docs/snapshots.md says %q of %s, and %s has no %q", words, row, table, victim)
			}
		}
	}
}

// victimsOf returns the inner keys of a map of maps that a file declares.
func victimsOf(t *testing.T, file *ast.File, name string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != name || len(spec.Values) != 1 {
			return true
		}
		for _, stage := range spec.Values[0].(*ast.CompositeLit).Elts {
			for _, victim := range stage.(*ast.KeyValueExpr).Value.(*ast.CompositeLit).Elts {
				text, err := strconv.Unquote(victim.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out[text] = true
			}
		}
		return false
	})
	return out
}
