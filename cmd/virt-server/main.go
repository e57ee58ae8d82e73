// Command virt-server is every server of virtkit: api, controller and handler in one binary, and two more programs,
// each built with a tag that leaves only it in, because linking the Kubernetes machinery costs tens of megabytes of
// memory in every pod: with `launcher` it is virt-launcher, in the image of QEMU; with `exporter` it is virt-exporter,
// beside virt-server in an image that has nothing else.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newCommand(), os.Stderr)
	stop()
	os.Exit(code)
}

// run runs a command and returns the exit code. An error is reported under the command's name: virt-server,
// virt-launcher or virt-freezer.
func run(ctx context.Context, cmd *cobra.Command, stderr io.Writer) int {
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}
