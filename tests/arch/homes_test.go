package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// homes are words that a rule in one place is to read, and the directories and files of pkg that may name them. All
// others ask the rule.
var homes = []struct {
	words *regexp.Regexp
	in    []string
	ask   string
}{
	{regexp.MustCompile(`NamespaceTerminatingCause`), []string{"pkg/service/frame"}, "frame.Ending"},
	// The reconcilers of snapshots and restores write them.
	{regexp.MustCompile(`[sS]tatus\.(Snapshot|Restore)InProgress`), []string{
		"pkg/vm/snapshots", "pkg/controller/snapshotcontroller/reconciler.go",
		"pkg/controller/restorecontroller/apply.go",
	}, "RestoreOf and SnapshotOf of pkg/vm/snapshots"},
	// signal.Notify takes back a hangup that nohup(1) has us ignore. The dashboard does that on purpose: under nohup it
	// has no terminal and does not begin, and without the terminal that was closed nobody could end it.
	{regexp.MustCompile(`syscall\.SIGHUP`), []string{
		"pkg/client/cli/root/root.go", "pkg/client/cli/dashboardcmd/terminal.go",
	}, "the command's context, which a hangup ends"},
}

// TestRulesHaveOneHome fails where a rule is written out that stands elsewhere.
func TestRulesHaveOneHome(t *testing.T) {
	const root = "../.."
	found := map[string]bool{}
	for _, path := range sources(t, root) {
		if !strings.HasPrefix(path, "pkg/") || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, home := range homes {
			word := home.words.FindString(string(text))
			if word == "" {
				continue
			}
			at := slices.IndexFunc(home.in, func(in string) bool { return within(path, in) })
			if at < 0 {
				t.Errorf("%s names %s: ask %s", path, word, home.ask)
				continue
			}
			found[home.in[at]] = true
		}
	}
	for _, home := range homes {
		for _, in := range home.in {
			if !found[in] {
				t.Errorf("%s does not name %s any more: take it from the list in tests/arch", in, home.words)
			}
		}
	}
}
