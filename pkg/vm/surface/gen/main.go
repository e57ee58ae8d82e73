// Command gen writes docs/api-surface.md, or the file named by its argument, from the table in
// pkg/vm/surface. `go generate ./pkg/vm/surface` runs it.
package main

import (
	"fmt"
	"os"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(surface.Markdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
