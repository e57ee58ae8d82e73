package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/controlplane"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

// Run runs a node's PID 1. It waits until the node's network is set up, which one byte on connected signals; end of
// file without it means that the command that started the node has died, and Run returns an error. Then it runs the
// node's programs until SIGTERM.
func Run(ctx context.Context, n instance.Node, connected io.Reader) error {
	if os.Getpid() != 1 {
		return errors.New("a node's init is started by `virt-local up`, in namespaces of its own")
	}
	if err := mountAll(n); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(n.NodeName())); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if _, err := io.ReadFull(connected, make([]byte, 1)); err != nil {
		return fmt.Errorf("the command that started this node has ended before its network was laid: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("set the node to forward: %w", err)
	}
	if n.Multus {
		for j := 1; j <= instance.LANs; j++ {
			if err := hostnet.Mute(hostnet.LANBridge(j)); err != nil {
				return err
			}
		}
	}
	if err := os.Setenv("PATH", n.Path("bin")+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err !=
		nil {
		return fmt.Errorf("set PATH: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := newSupervisor(n.LogDir())
	defer s.close()
	return runPrograms(ctx, n, s)
}

// runPrograms starts containerd at once and the others when the API server answers.
func runPrograms(ctx context.Context, n instance.Node, s *supervisor) error {
	s.run(ctx, "containerd", "containerd", "--config", n.Dir("etc", "containerd.toml"))
	if err := component.Poll(ctx, 50*time.Millisecond, dialable("unix", ContainerdSocket)); err != nil {
		return stopped(ctx, err)
	}
	if err := component.Poll(ctx, 50*time.Millisecond, apiReady(n)); err != nil {
		return stopped(ctx, err)
	}
	name := n.NodeName()
	s.run(
		ctx, "kubelet", "kubelet", "--config", n.Dir("etc", "kubelet.yaml"), "--kubeconfig",
		n.Path("pki", name+".kubeconfig"),
		"--hostname-override", name, "--node-ip", instance.List(n.IPs()), "--root-dir", "/var/lib/kubelet",
		"--cert-dir", "/var/lib/kubelet/pki",
	)
	if n.Storage == instance.CSI {
		s.runProgram(ctx, csi.Node, csi.NodeProgram(n.Instance), csi.NodeArgs(n)...)
	}
	s.run(ctx, "kube-proxy", "kube-proxy", "--config", n.Dir("etc", "kube-proxy.yaml"))
	<-ctx.Done()
	return nil
}

// stopped turns the error of a wait that SIGTERM ended into none.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func dialable(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// apiReady asks the API server with the node's own identity.
func apiReady(n instance.Node) func(context.Context) error {
	c, err := kubeconfig.Load(n.Server(), n.Path("pki"), n.NodeName())
	if err != nil {
		return func(context.Context) error { return component.Permanent(err) }
	}
	return controlplane.HealthCheck(c, "/readyz")
}

// Certificates makes the node's certificates and the kubeconfigs of its programs.
func Certificates(n instance.Node) error {
	dir := pki.Dir{Path: n.Path("pki")}
	if err := dir.Ensure(pki.Node(n.NodeName(), instance.Texts(n.IPs())...)); err != nil {
		return err
	}
	for _, name := range []string{n.NodeName(), pki.Proxy, pki.Multus} {
		c, err := kubeconfig.Load(n.Server(), dir.Path, name)
		if err == nil {
			err = c.WriteFile(filepath.Join(dir.Path, name+".kubeconfig"), name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func machineID(n instance.Node) string {
	sum := sha256.Sum256([]byte(n.Name + "/" + n.NodeName() + "/" + n.Created.UTC().Format(time.RFC3339Nano)))
	return hex.EncodeToString(sum[:16])
}
