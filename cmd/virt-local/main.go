// Command virt-local runs a Kubernetes of several nodes on one Linux machine; see docs/virt-local.md.
package main

import (
	"os"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
