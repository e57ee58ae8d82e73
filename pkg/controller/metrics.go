package controller

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/virtkit/virtkit/pkg/controller/inventory"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
)

// everywhere is work of each replica, whether it leads or not.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e everywhere) NeedLeaderElection() bool { return false }

// addMetrics serves Prometheus: each replica exposes its own, the one that leads the cluster's, too.
func (o *Options) addMetrics(
	mgr ctrl.Manager, cluster *rest.Config, client kubernetes.Interface, current func() config.Config,
) error {
	answer := endpoint.New()
	answer.Flag(metrics.ControllerLeading, func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	})
	answer.Flag(metrics.ControllerReady, func() bool { return true }) // what is not ready to lead does not run
	err := mgr.Add(&inventory.Inventory{
		Cache: mgr.GetCache(), Config: current, Endpoint: answer,
		Transitions: inventory.NewTransitions(answer.Registry, time.Now),
	})
	if err != nil {
		return err
	}
	source := certs.NewSource(client, names.Namespace, names.ControllerCertSecret)
	return mgr.Add(everywhere(func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return source.Run(ctx) })
		group.Go(func() error { return answer.Listen(ctx, o.MetricsPort, source.ServerConfig(), cluster) })
		return group.Wait()
	}))
}
