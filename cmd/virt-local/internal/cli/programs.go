package cli

import (
	"context"
	"fmt"
	"os"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // containerd's plugins
	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyapp "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs are upstream's own commands, under their own names and with their own flags.
var programs = map[string]func(args []string) int{
	"containerd": func(args []string) int { return exitCode(containerd.App().Run(context.Background(), args)) },
	"kubelet":    func(args []string) int { return runCobra(kubeletapp.NewKubeletCommand(context.Background()), args) },
	"kube-proxy": func(args []string) int { return runCobra(proxyapp.NewProxyCommand(), args) },
}

func runCobra(c *cobra.Command, args []string) int {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	c.SetArgs(args[1:])
	c.SilenceUsage, c.SilenceErrors = true, true
	return exitCode(c.ExecuteContext(context.Background()))
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}
