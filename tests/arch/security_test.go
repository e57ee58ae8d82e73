package arch

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z0-9]\w*)\(`)
	namedTest    = regexp.MustCompile("`((?:Test|Fuzz)[A-Z0-9]\\w*)`")
	fuzzRow      = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `(Fuzz\\w+)` \\| [^|]+ \\|$")
)

// testFunctions are the tests and fuzz targets of the repository: the packages of each, by name.
func testFunctions(t *testing.T, root string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, name := range sources(t, root) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			out[string(match[1])] = append(out[string(match[1])], filepath.Dir(name))
		}
	}
	return out
}

// TestSecurityPage holds docs/security.md against the tree: each test that it names is there, and its list of fuzz
// targets has every one and no other.
func TestSecurityPage(t *testing.T) {
	root := "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := testFunctions(t, root)
	named := namedTest.FindAllSubmatch(page, -1)
	if len(named) == 0 {
		t.Error("docs/security.md names no tests")
	}
	for _, match := range named {
		if name := string(match[1]); have[name] == nil {
			t.Errorf("docs/security.md names %s, which is no test", name)
		}
	}

	want := map[string]bool{}
	for name, packages := range have {
		for _, dir := range packages {
			if strings.HasPrefix(name, "Fuzz") {
				want[dir+" "+name] = true
			}
		}
	}
	_, section, found := bytes.Cut(page, []byte("\n## Fuzzing\n"))
	if !found {
		t.Fatal("docs/security.md has no section Fuzzing")
	}
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	var listed []string
	for _, match := range fuzzRow.FindAllSubmatch(section, -1) {
		listed = append(listed, string(match[1])+" "+string(match[2]))
	}
	for _, target := range slices.Sorted(maps.Keys(want)) {
		if !slices.Contains(listed, target) {
			t.Errorf("docs/security.md does not list %s; add a row `| package | target | what it feeds "+
				"|` to its section Fuzzing", target)
		}
	}
	for i, target := range listed {
		if !want[target] || slices.Contains(listed[:i], target) {
			t.Errorf("docs/security.md lists %s, which is no target or is listed already", target)
		}
	}
}
