package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/controlplane"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/dns"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
)

// ServeControlPlane returns the control plane's process of an instance. It runs until ctx is done, and begins anew when
// something of it fails.
func ServeControlPlane(ctx context.Context, in *instance.Instance) error {
	again := newAgain(ctx)
	extras := []controlplane.Extra{
		{
			Name: "local-provisioner",
			Run:  func(ctx context.Context, admin kubeconfig.Credentials) error { return serveVolumes(ctx, in, admin) },
		},
		{
			Name: "cluster-dns",
			Run:  func(ctx context.Context, admin kubeconfig.Credentials) error { return serveDNS(ctx, in, admin) },
		},
		{Name: "webhook-clients", Run: serveWebhookClients},
	}
	if in.Storage == instance.CSI {
		extras = append(extras, controlplane.Extra{
			Name: csi.Controller,
			Run:  func(ctx context.Context, _ kubeconfig.Credentials) error { return csi.Serve(ctx, in) },
		})
	}
	if in.Multus {
		extras = append(extras, controlplane.Extra{Name: "multus", Run: serveMultus})
	}
	err := controlplane.Run(ctx, controlplane.Config{
		Dir:              in.StateDir,
		Address:          in.Address(),
		ServiceNet:       instance.List(in.ServiceNets()),
		Controllers:      "*",
		Scheduler:        true,
		NodeMonitorGrace: in.NodeMonitorGrace,
		Durable:          true,
		Extras:           extras,
	}, func(kubeconfig.Credentials) error { return nil })
	if err != nil {
		again.start(ctx, err)
	}
	return err
}

// configFor returns the configuration of a client that speaks as c.
func configFor(c kubeconfig.Credentials, agent string) *rest.Config {
	return &rest.Config{
		Host: c.Server, UserAgent: agent, QPS: 100, Burst: 200,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, CertData: c.Certificate, KeyData: c.CertificateKey},
	}
}

// clientFor makes a client that is not held back by client-side rate limits.
func clientFor(c kubeconfig.Credentials, agent string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(configFor(c, agent))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

func serveDNS(ctx context.Context, in *instance.Instance, admin kubeconfig.Credentials) error {
	client, err := clientFor(admin, "virt-local-dns")
	if err != nil {
		return err
	}
	return dns.Run(ctx, client, in.HostIPs(), in.DNSIPs())
}

func serveVolumes(ctx context.Context, in *instance.Instance, admin kubeconfig.Credentials) error {
	client, err := clientFor(admin, "virt-local-provisioner")
	if err != nil {
		return err
	}
	store := provision.Disk{Dir: in.Path("volumes")}
	if err := store.AttachAll(); err != nil {
		return err
	}
	if in.Storage == instance.CSI {
		return provision.EraseOld(ctx, client, store)
	}
	_, err = client.StorageV1().StorageClasses().Create(ctx, provision.StorageClass(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("create StorageClass %s: %w", provision.Class, err)
	}
	return provision.Run(ctx, client, store)
}
