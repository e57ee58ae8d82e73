// Command gen writes docs/metrics.md, or the file named by its argument, from the families of pkg/service/metrics
// and the rules of manifests/monitoring. `go generate ./pkg/service/metrics` runs it.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	text, err := document()
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
