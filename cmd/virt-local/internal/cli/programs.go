package cli

import (
	"context"
	"fmt"
	"os"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // containerd's plugins
	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containernetworking/cni/pkg/skel"
	cni "github.com/containernetworking/cni/pkg/version"
	"github.com/spf13/cobra"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/multus"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyapp "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/payload"
)

// programs are upstream's own commands, under their own names and with their own flags.
var programs = map[string]func(args []string) int{
	"containerd": func(args []string) int { return exitCode(containerd.App().Run(context.Background(), args)) },
	"kubelet":    func(args []string) int { return runCobra(kubeletapp.NewKubeletCommand(context.Background()), args) },
	"kube-proxy": func(args []string) int { return runCobra(proxyapp.NewProxyCommand(), args) },
}

// plugins are programs that are found by their file's name, and read from the environment what to do.
var plugins = map[string]func(){
	payload.Multus: multusPlugin,
}

// multusPlugin runs the CNI plugin Multus.
func multusPlugin() {
	add := func(args *skel.CmdArgs) error {
		result, err := multus.CmdAdd(args, nil, nil)
		if err != nil {
			return err
		}
		return result.Print()
	}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    add,
		Del:    func(args *skel.CmdArgs) error { return multus.CmdDel(args, nil, nil) },
		Check:  func(args *skel.CmdArgs) error { return multus.CmdCheck(args, nil, nil) },
		GC:     func(args *skel.CmdArgs) error { return multus.CmdGC(args, nil, nil) },
		Status: func(args *skel.CmdArgs) error { return multus.CmdStatus(args, nil, nil) },
	}, cni.All, "Multus, as part of virt-local")
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
