package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
)

// newProbeCommand returns the command `virt-launcher probe`, which the kubelet runs.
func newProbeCommand() *cobra.Command {
	request := probeRequest{Timeout: time.Second}
	runDir := names.RunDir
	cmd := &cobra.Command{
		Use:   "probe [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Ask the guest agent whether the guest is well",
		Long: "With a command, the guest is well when that ends with 0 in it; without one, when its agent answers. " +
			"The exit\n" +
			"code is 0 or 1; why it is 1 is said on stdout, which the kubelet puts into an event.",
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Command = args
			ctx, cancel := context.WithTimeout(cmd.Context(), request.Timeout+time.Second)
			defer cancel()
			answer, err := askLauncher(ctx, filepath.Join(runDir, names.SocketProbe), request)
			if err != nil {
				answer.Message = err.Error()
			}
			if !answer.Passed {
				fmt.Fprintln(cmd.OutOrStdout(), answer.Message)
				os.Exit(1) // all is said
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&request.Timeout, "timeout", request.Timeout, "how long the guest may take")
	f.BoolVar(&request.Arrived, "arrived", false, "ask nothing but whether there is a guest, and wait for it")
	f.StringVar(&runDir, "run-dir", runDir, "where the launcher's sockets are")
	return cmd
}

// askLauncher has the launcher of this pod probe its guest.
func askLauncher(ctx context.Context, socket string, request probeRequest) (probeAnswer, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return probeAnswer{}, fmt.Errorf("ask the launcher: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return probeAnswer{}, fmt.Errorf("ask the launcher: %w", err)
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("no answer in time")
		}
		return probeAnswer{}, fmt.Errorf("ask the launcher: %w", err)
	}
	var answer probeAnswer
	if err := json.Unmarshal(line, &answer); err != nil {
		return probeAnswer{}, fmt.Errorf("ask the launcher: %w", err)
	}
	return answer, nil
}
