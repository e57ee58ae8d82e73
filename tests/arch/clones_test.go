package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mibk/dupl/job"
	"github.com/mibk/dupl/syntax"
)

// No code stands twice: no two files have pieces whose syntax trees are alike and have so many nodes, whatever their
// names are. A rule that stands twice becomes a function of pkg/vm, a piece of a reconciler one of pkg/service/frame.
// Commands of virtctl may look more alike: each declares its flags. pkg/vm/surface has tables of fields. What is in
// mayBeAlike is no rule.
func TestClones(t *testing.T) {
	unused := maps.Clone(mayBeAlike)
	services := []string{"pkg/controller", "pkg/virtapi", "pkg/handler", "pkg/launcher", "pkg/vm", "pkg/service"}
	for _, test := range []struct {
		roots []string
		nodes int
	}{
		{services, 55},
		{[]string{"pkg", "cmd/virtctl", "cmd/virt-server"}, 100},
	} {
		var files []string
		for _, dir := range test.roots {
			files = append(files, compared(t, filepath.Join("../..", dir))...)
		}
		if len(files) < 100 {
			t.Fatalf("only %d files are compared", len(files))
		}
		for _, clone := range clones(files, test.nodes) {
			of := position.ReplaceAllString(clone, "")
			delete(unused, of)
			if mayBeAlike[of] == "" {
				t.Errorf("alike by %d nodes or more: %s", test.nodes, clone)
			}
		}
	}
	for of := range unused {
		t.Errorf("nothing is alike any more in %s, which mayBeAlike lists", of)
	}
}

// position is what clones adds to a file's name.
var position = regexp.MustCompile(`:#[0-9]+`)

// mayBeAlike are the files with pieces that are alike, and why that is no code to share.
var mayBeAlike = map[string]string{
	"pkg/controller/cdi/access.go, pkg/controller/volumesnapshots/volumesnapshots.go": "a typed Get, of two kinds",
	"pkg/controller/clonecontroller/reconciler.go, pkg/controller/restorecontroller/reconciler.go": "" +
		"each declares its frame",
	"pkg/controller/clonecontroller/reconciler.go, pkg/controller/exportcontroller/reconciler.go": "" +
		"a typed List and its error, of two kinds",
	"pkg/controller/exportcontroller/reconciler.go, pkg/controller/restorecontroller/reconciler.go": "" +
		"each declares what it watches",
	"pkg/controller/exportcontroller/pod.go, pkg/controller/uploadcontroller/pod.go": "" +
		"each declares its pod's resources, with other numbers, and facts",
	"pkg/controller/poolcontroller/reconciler.go, pkg/controller/replicasetcontroller/reconciler.go": "" +
		"a typed call of frame.PatchStatusRecorded with the words of each kind",
	"pkg/handler/streams/copyfile.go, pkg/handler/streams/exec.go": "each declares its order to the launcher",
}

// The detector finds what is renamed, and not what is shorter.
func TestClonesAreFound(t *testing.T) {
	dir := t.TempDir()
	piece := func(name, x string) string {
		path := filepath.Join(dir, name)
		var body strings.Builder
		for i := range 8 {
			fmt.Fprintf(&body, "\tif %s[%d] > %d {\n\t\treturn %s[%d] + %d, nil\n\t}\n", x, i, i, x, i, i)
		}
		text := "package a\n\nfunc " + x + "s(" + x + " []int) (int, error) {\n" + body.String() +
			"\treturn 0, nil\n}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := []string{piece("a.go", "first"), piece("b.go", "second")}
	if found := clones(files, 75); len(found) != 1 {
		t.Errorf("found %q", found)
	}
	if found := clones(files, 1000); len(found) != 0 {
		t.Errorf("found %q", found)
	}
}

// compared are the Go files below a directory, without tests, generated ones and pkg/vm/surface.
func compared(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(path, "pkg/vm/surface")):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
			!strings.HasSuffix(path, ".pb.go"):
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// clones are the groups of pieces in different files that are alike.
func clones(files []string, nodes int) []string {
	feed := make(chan string)
	go func() {
		defer close(feed)
		for _, file := range files {
			feed <- file
		}
	}()
	tree, data, done := job.BuildTree(job.Parse(feed))
	<-done
	tree.Update(&syntax.Node{Type: -1}) // its end
	groups := map[string][]string{}
	for match := range tree.FindDuplOver(nodes) {
		alike := syntax.FindSyntaxUnits(*data, match, nodes)
		for _, piece := range alike.Frags {
			at := fmt.Sprintf("%s:#%d", strings.TrimPrefix(piece[0].Filename, "../../"), piece[0].Pos)
			if !slices.Contains(groups[alike.Hash], at) {
				groups[alike.Hash] = append(groups[alike.Hash], at)
			}
		}
	}
	var out []string
	for _, pieces := range groups {
		slices.Sort(pieces)
		first, _, _ := strings.Cut(pieces[0], ":")
		if slices.ContainsFunc(pieces, func(p string) bool { return !strings.HasPrefix(p, first+":") }) {
			out = append(out, strings.Join(pieces, ", "))
		}
	}
	slices.Sort(out)
	return out
}
