//go:build generated

// Package generated tests that generated files are what their generators write: custom resource definitions,
// protobuf code, the API surface, shell completions, the command reference, the schemas of reports. It needs what
// `make deps` installs.
package generated

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// It generates in a copy, so that a test run never changes the files it judges.
func TestCurrent(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	before := map[string][]byte{}
	for _, name := range sources(t, root) {
		from := filepath.Join(root, name)
		info, err := os.Stat(from)
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not committed yet, or a link to a directory
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()|0o200); err != nil {
			t.Fatal(err)
		}
		before[name] = text
	}

	cmd := exec.CommandContext(t.Context(), "go", "generate", "./...")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go generate ./...: %v\n%s", err, out)
	}

	after := map[string]bool{}
	err = filepath.WalkDir(work, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(work, path)
		if err != nil {
			return err
		}
		after[name] = true
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch was, known := before[name]; {
		case !known:
			t.Errorf("%s is missing; `make generate` writes it", name)
		case !bytes.Equal(was, text):
			t.Errorf("%s is not current; `make generate` writes it anew", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range before {
		if !after[name] {
			t.Errorf("%s is not written any more; remove it", name)
		}
	}
}

// sources are the files of the repository, committed or about to be.
func sources(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the repository's files: %v", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}
