package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(string, []byte, fs.FileMode) error{
		"Replace": Replace, "ReplaceDurably": ReplaceDurably,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			// What a program that was killed has left is replaced, too.
			if err := os.WriteFile(path+".new", []byte("a longer text than the next"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, content := range []string{"first", "2"} {
				if err := replace(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != content {
					t.Errorf("%q, %v", got, err)
				}
			}
			if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the temporary file: %v", err)
			}
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
		})
	}
}

// TestReplaceFails: the old content stays when the new one cannot be written.
func TestReplaceFails(t *testing.T) {
	for name, replace := range map[string]func(string, []byte, fs.FileMode) error{
		"Replace": Replace, "ReplaceDurably": ReplaceDurably,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(path+".new", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := replace(path, []byte("new"), 0o600); err == nil {
				t.Error("no error")
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
