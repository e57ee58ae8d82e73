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
