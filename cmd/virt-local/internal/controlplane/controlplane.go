// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler as goroutines of
// one process, and what a virt-local cluster has besides: the StorageClass local with its provisioner, and
// cluster DNS. It takes a directory and addresses and gives an API server; everything it writes is below
// that directory.
//
// Alone, on loopback, without controllers, it is an API server for tests of reconcilers.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

// ShutdownTime is how long a control plane may take to end what it is doing. The API server needs it only
// when clients have vanished without a word; etcd, which it protects, is closed properly in any case.
const ShutdownTime = 6 * time.Second

// Config says where a control plane listens and what is part of it.
type Config struct {
	// Dir has, or gets, etcd's data, the certificates (pki/) and the audit log. The process works in it
	// (chdir), which keeps the path of etcd's socket short.
	Dir string
	// Address is where the API server listens; port 0 takes a free one.
	Address string
	// ServiceNet is the network of cluster IPs; two networks, separated by a comma, for both families.
	ServiceNet string
	// Controllers are those kube-controller-manager is to run, as its --controllers flag has them; empty for
	// no controller manager.
	Controllers string
	Scheduler   bool
	// NodeMonitorGrace is how long a silent node stays Ready; 0 for Kubernetes' default.
	NodeMonitorGrace time.Duration
	// Durable makes etcd wait for the disk at each write.
	Durable bool
	// Extras are more tasks, started in order once the API server is up.
	Extras []Extra
}

// Extra is a task that needs the API server.
type Extra struct {
	Name string
	Run  func(ctx context.Context, admin kubeconfig.Credentials) error
}

// loopback reports whether only this machine can reach the address.
func (c Config) loopback() bool {
	host, _, err := net.SplitHostPort(c.Address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// Run runs a control plane until ctx is done or a part of it fails. It calls ready once the API server
// answers and the controllers have made the default service account.
func Run(ctx context.Context, cfg Config, ready func(admin kubeconfig.Credentials) error) error {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chdir(cfg.Dir); err != nil {
		return fmt.Errorf("enter directory: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Address)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	defer listener.Close()
	address := listener.Addr().(*net.TCPAddr)
	certs := pki.ControlPlane(append([]string{address.IP.String()}, firstIPs(cfg.ServiceNet)...)...)
	if err := (pki.Dir{Path: "pki"}).Ensure(certs); err != nil {
		return err
	}
	server := "https://" + address.String()
	for _, name := range []string{pki.Controllers, pki.Scheduler, pki.Admin} {
		c, err := kubeconfig.Load(server, "pki", name)
		if err == nil {
			err = c.WriteFile(filepath.Join("pki", name+".kubeconfig"), name)
		}
		if err != nil {
			return err
		}
	}
	if err := instance.WriteFile("audit-policy.yaml", []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	if err := writeAdmission(); err != nil {
		return err
	}
	admin, err := kubeconfig.Load(server, "pki", pki.Admin)
	if err != nil {
		return err
	}

	failed := make(chan error, 16)
	stack := component.Stack{Components: cfg.components(listener, admin, func(err error) { failed <- err })}
	up := make(chan error, 1)
	upCtx, cancel := context.WithCancel(ctx)
	go func() {
		err := stack.Up(upCtx)
		if err == nil {
			err = ready(admin)
		}
		up <- err
	}()
	select {
	case err = <-up:
		if err == nil {
			select {
			case <-ctx.Done():
			case err = <-failed:
			}
		}
	case err = <-failed:
		cancel()
		if stopped := <-up; !errors.Is(stopped, context.Canceled) {
			err = errors.Join(err, stopped)
		}
	}
	cancel()
	if ctx.Err() != nil {
		err = nil
	}
	downCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownTime)
	defer cancel()
	return errors.Join(err, stack.Down(downCtx))
}

func (c Config) components(
	listener net.Listener, admin kubeconfig.Credentials, failed func(error),
) []component.Component {
	cs := []component.Component{
		&etcd{durable: c.Durable, failed: failed},
		apiServer(c, listener, admin, failed),
	}
	if c.Controllers != "" {
		cs = append(cs, controllerManager(c, admin, failed))
	}
	if c.Scheduler {
		cs = append(cs, scheduler(failed))
	}
	for _, e := range c.Extras {
		cs = append(cs, &component.Task{
			Label: e.Name, Failed: failed,
			Run: func(ctx context.Context) error { return e.Run(ctx, admin) },
		})
	}
	return cs
}

// firstIPs returns the first usable address of each network, the cluster IP of kubernetes.default.
func firstIPs(networks string) []string {
	var first []string
	for text := range strings.SplitSeq(networks, ",") {
		if network, err := netip.ParsePrefix(text); err == nil {
			first = append(first, network.Masked().Addr().Next().String())
		}
	}
	return first
}

// auditPolicy records who does what for the service accounts of namespace kubevirt, and nobody else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:kubevirt"]
- level: None
`
