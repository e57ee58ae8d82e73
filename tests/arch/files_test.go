package arch

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNoMachineNames keeps out of the files what is true on one machine only: the hosts that its package managers
// are set to, and where the repository lies.
func TestNoMachineNames(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	unwanted := mirrors(t)
	if strings.Count(root, "/") > 1 {
		unwanted = append(unwanted, root)
	}
	for _, name := range sources(t, root) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range unwanted {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s names %s, which is of this machine", name, word)
			}
		}
	}
}

// sources are the files of the repository, committed or about to be.
func sources(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files that git knows: %v", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}

var (
	address = regexp.MustCompile(`https?://[^\s,|'"\]]+`)
	comment = regexp.MustCompile(`(?m)^\s*(#|//).*$`)
)

// mirrors are the hosts that Go, apt, npm and pip fetch from here.
func mirrors(t *testing.T) []string {
	t.Helper()
	var settings []byte
	if out, err := exec.Command("go", "env", "GOPROXY", "GOSUMDB").Output(); err == nil {
		settings = append(settings, out...)
	}
	for _, pattern := range []string{
		"/etc/apt/sources.list", "/etc/apt/sources.list.d/*", "/etc/apt/apt.conf.d/*", "/etc/pip.conf",
		os.Getenv("HOME") + "/.npmrc", "/etc/npmrc",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil {
				settings = append(settings, text...)
			}
		}
	}
	for _, variable := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY",
		"npm_config_registry",
	} {
		settings = append(settings, " "+os.Getenv(variable)...)
	}
	var hosts []string
	for _, match := range address.FindAllString(comment.ReplaceAllString(string(settings), ""), -1) {
		u, err := url.Parse(match)
		if err != nil || !strings.Contains(u.Hostname(), ".") {
			continue
		}
		hosts = append(hosts, u.Hostname())
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// TestArchitectureNamesFiles holds docs/architecture.md against the tree: every path there exists, and each step of the
// life of a VM names a file to read.
func TestArchitectureNamesFiles(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile("`((?:pkg|cmd|tests|manifests|images|docs)/[^` ]+)`").FindAllSubmatch(text, -1)
	if len(paths) < 40 {
		t.Errorf("only %d paths were found", len(paths))
	}
	for _, p := range paths {
		if _, err := os.Stat(filepath.Join("../..", string(p[1]))); err != nil {
			t.Errorf("docs/architecture.md names %s: %v", p[1], err)
		}
	}
	_, life, found := bytes.Cut(text, []byte("## The life of a VM\n"))
	life, _, ends := bytes.Cut(life, []byte("\n## "))
	if !found || !ends {
		t.Fatal("there is no chapter about the life of a VM")
	}
	steps := regexp.MustCompile(`(?m)^[0-9]+\. `).Split(string(life), -1)[1:]
	if len(steps) < 7 {
		t.Errorf("the life of a VM has %d steps", len(steps))
	}
	for i, step := range steps {
		if !strings.Contains(step, ".go`") {
			t.Errorf("step %d of the life of a VM names no file", i+1)
		}
	}
}

var (
	ownPath    = regexp.MustCompile(`(?:^|[^\w./-])((?:pkg|cmd)/[\w./-]*\w)`)
	ownPackage = regexp.MustCompile(`\b(?:of|in|by|from) package ([a-z]\w*)`)
)

// TestCommentsNameFiles holds the comments of Go files against the tree: the paths and packages that they name exist.
func TestCommentsNameFiles(t *testing.T) {
	const root = "../.."
	var files []string
	packages, found := map[string]bool{}, 0
	for _, name := range sources(t, root) {
		if strings.HasSuffix(name, ".go") {
			files = append(files, name)
			packages[filepath.Base(filepath.Dir(name))] = true
		}
	}
	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		wrong, paths := wrongNames(string(text), exists, packages)
		found += paths
		for _, w := range wrong {
			t.Errorf("%s: a comment names %s, which does not exist", name, w)
		}
	}
	if found < 40 {
		t.Errorf("only %d paths were found in comments", found)
	}
	wrong, _ := wrongNames("a() /"+"/ As pkg/gone/x.go, and by package lost.\n", exists, packages)
	if !slices.Equal(wrong, []string{"pkg/gone/x.go", "package lost"}) {
		t.Errorf("of wrong names %q are found", wrong)
	}
}

// wrongNames are the paths and packages of ours in the comments of a Go file that do not exist, and how many paths
// there are in all. A package that the file imports exists.
func wrongNames(text string, exists func(string) bool, packages map[string]bool) (wrong []string, paths int) {
	for line := range strings.SplitSeq(text, "\n") {
		_, said, _ := strings.Cut(line, "//")
		for _, match := range ownPath.FindAllStringSubmatch(said, -1) {
			if paths++; !exists(match[1]) {
				wrong = append(wrong, match[1])
			}
		}
		for _, match := range ownPackage.FindAllStringSubmatch(said, -1) {
			if !packages[match[1]] && !strings.Contains(text, "/"+match[1]+"\"\n") {
				wrong = append(wrong, "package "+match[1])
			}
		}
	}
	return wrong, paths
}
