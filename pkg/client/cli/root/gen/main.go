// Command gen writes what is generated from virtctl's commands: completions/, one script a shell, docs/cli/ and
// docs/man/, one page a command, in docs/output.md the reports that commands print, and docs/schemas/, one file a
// report. Its argument is the repository's root.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/root"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// folders are written whole: a file in them that is not generated any more is removed.
var folders = []string{"completions", "docs/cli", "docs/man", schemasFolder}

func write(dir string) error {
	files, err := generate(dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// outputPage describes the reports beside what people wrote.
const outputPage = "docs/output.md"

// generate returns all files by their path below the repository's root, which is at dir.
func generate(dir string) (map[string][]byte, error) {
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	files, err := completions(root.NewCommand(f))
	if err != nil {
		return nil, err
	}
	pages, err := manPages(root.NewCommand(f))
	if err != nil {
		return nil, err
	}
	maps.Copy(files, pages)
	for name, text := range reference(root.NewCommand(f)) {
		files[name] = text
	}
	all, err := reports(dir)
	if err != nil {
		return nil, err
	}
	described, err := schemas(all)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, described)
	page, err := os.ReadFile(filepath.Join(dir, outputPage))
	if err != nil {
		return nil, err
	}
	if files[outputPage], err = withReports(page, all); err != nil {
		return nil, fmt.Errorf("%s: %w", outputPage, err)
	}
	return files, nil
}
