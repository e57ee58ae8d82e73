package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/root"
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

// TestOptionsAreRows: an option is one line of its table, with three cells.
func TestOptionsAreRows(t *testing.T) {
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	options := 0
	for name, page := range reference(root.NewCommand(f)) {
		for line := range strings.Lines(string(page)) {
			if !strings.HasPrefix(line, "| `-") {
				continue
			}
			options++
			bars := strings.Count(line, "|") - strings.Count(line, `\|`)
			if bars != 4 || !strings.HasSuffix(line, " |\n") {
				t.Errorf("%s: %q is no row of three cells", name, line)
			}
		}
	}
	if options < 300 {
		t.Errorf("only %d options were found", options)
	}
}
