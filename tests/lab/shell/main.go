// Command shell gives a shell in a lab that runs (`make lab-shell`), or ends one (`make lab-down`):
//
//	go run ./tests/lab/shell [--down] [NAME]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/virtkit/virtkit/tests/lab/machine"
)

func main() {
	down := flag.Bool("down", false, "end it and remove its files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code, err := run(ctx, flag.Arg(0), *down)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, name string, down bool) (int, error) {
	if down {
		return 0, machine.Down(".", name)
	}
	m, err := machine.Attach(ctx, ".", name)
	if err != nil {
		return 0, err
	}
	return m.Shell(ctx)
}
