// Command virt-server is every server of virtkit in one binary: api, controller, handler. The
// launcher image carries it built with the tag `launcher`, which leaves only the launcher in, because
// linking the Kubernetes machinery costs tens of megabytes of memory in every VM's pod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "virt-server:", err)
		os.Exit(1)
	}
}
