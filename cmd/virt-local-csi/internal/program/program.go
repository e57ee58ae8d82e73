// Package program runs a command of the controller's program or the node's, and decides how it ends.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// Commands are a program's, by its first argument, which virt-local knows the process by. Each gets the others.
type Commands map[string]func(ctx context.Context, args []string) error

// Main runs the command that the first argument names, until it ends or the process gets a signal. It does not return
// when the command fails.
func (c Commands) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := c.run(ctx, os.Args[1:])
	stop()
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (c Commands) run(ctx context.Context, args []string) error {
	if len(args) == 0 || c[args[0]] == nil {
		return errors.New("this is a part of virt-local, which starts it: use virt-local up")
	}
	return c[args[0]](ctx, args[1:])
}
