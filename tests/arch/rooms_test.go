package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRooms holds the tables of docs/architecture.md against the tree: every directory below pkg and pkg/vm has a row,
// those below pkg/client are named in its row, and every row names a directory.
func TestRooms(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rooms := rows(t, string(text), "| room | what is in it |")
	compare(t, "pkg", "pkg/", rooms)
	compare(t, "pkg/vm", "", rows(t, string(text), "| package | its rule | who asks |"))
	for _, name := range directories(t, "pkg/client") {
		if !regexp.MustCompile("`" + name + "[`/]").MatchString(rooms["pkg/client"]) {
			t.Errorf("docs/architecture.md: the row of pkg/client does not say what %s is", name)
		}
	}
}

// TestImportsAreTold holds the chapter of docs/architecture.md about imports against the arrows: it names every package
// that all of the client, or all services, may import.
func TestImportsAreTold(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, found := strings.Cut(string(text), "\n## Which package may import which\n")
	chapter, _, ends := strings.Cut(chapter, "\n## ")
	if !found || !ends {
		t.Fatal("there is no chapter about imports")
	}
	for start, allowed := range map[string][]string{
		"- `pkg/client` ":  client,
		"- The services, ": service,
		"- Of each other ": slices.Concat(arrows["pkg/controller"], arrows["pkg/handler"]),
	} {
		_, point, found := strings.Cut(chapter, "\n"+start)
		if !found {
			t.Errorf("the chapter about imports has no point %q", start)
		}
		point, _, _ = strings.Cut(point, "\n- ")
		for _, name := range allowed {
			if strings.HasPrefix(start, "- Of") != strings.HasPrefix(name, "pkg/launcher/") ||
				within(name, "pkg/client") {
				continue
			}
			if name := strings.TrimPrefix(name, "pkg/"); !strings.Contains(point, "`"+name+"`") {
				t.Errorf("the point %q of the chapter about imports does not name `%s`", start, name)
			}
		}
	}
}

// rows returns the rows of the table with that header by each name in their first cells.
func rows(t *testing.T, text, header string) map[string]string {
	t.Helper()
	_, table, found := strings.Cut(text, header+"\n")
	if !found {
		t.Fatalf("docs/architecture.md has no table %q", header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	out := map[string]string{}
	for row := range strings.SplitSeq(table, "\n") {
		names, rest, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1) {
			if out[name[1]] != "" {
				t.Errorf("docs/architecture.md has two rows for %s", name[1])
			}
			out[name[1]] = rest
		}
	}
	return out
}

// compare holds the directories below parent against rows, whose names have the prefix before the directory's.
func compare(t *testing.T, parent, prefix string, rows map[string]string) {
	t.Helper()
	exist := directories(t, parent)
	for _, name := range exist {
		if rows[prefix+name] == "" {
			t.Errorf("docs/architecture.md has no row for %s/%s; say there what it is for", parent, name)
		}
	}
	for name := range rows {
		if dir, ok := strings.CutPrefix(name, prefix); !ok || !slices.Contains(exist, dir) {
			t.Errorf("docs/architecture.md has a row for %s, which is no directory below %s", name, parent)
		}
	}
}

// directories returns the names of the directories below parent that have Go files in them or below.
func directories(t *testing.T, parent string) []string {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range sources(t, "../..") {
		below, ok := strings.CutPrefix(name, parent+"/")
		if dir, file, deeper := strings.Cut(below, "/"); ok && deeper && filepath.Ext(file) == ".go" {
			seen[dir] = true
		}
	}
	if len(seen) < 3 {
		t.Fatalf("only %d directories were found below %s", len(seen), parent)
	}
	out := make([]string, 0, len(seen))
	for dir := range seen {
		out = append(out, dir)
	}
	slices.Sort(out)
	return out
}
