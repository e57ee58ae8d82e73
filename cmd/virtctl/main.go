// Command virtctl runs virtual machines on Kubernetes: every user action of virtkit. Installed as
// kubectl-virt it is the kubectl plugin `kubectl virt`.
package main

import (
	"os"

	"github.com/virtkit/virtkit/pkg/client/cli/root"
)

func main() { os.Exit(root.Main()) }
