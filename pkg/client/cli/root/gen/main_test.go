package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreCurrent(t *testing.T) {
	repository := filepath.Join("..", "..", "..", "..", "..")
	files, err := generate(repository)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Errorf("%v; `go generate ./pkg/client/cli/root` writes it", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not current; `go generate ./pkg/client/cli/root` writes it anew", name)
		}
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(repository, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if _, known := files[filepath.Join(folder, entry.Name())]; !known {
				t.Errorf("%s/%s is not generated any more; remove it", folder, entry.Name())
			}
		}
	}
}
