package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdSocket is where etcd listens, relative to the control plane's directory: as a unix socket in a
// directory of root's it needs neither a port nor certificates.
const etcdSocket = "unix://etcd.sock"

// etcd is the cluster's store.
type etcd struct {
	durable bool
	failed  func(error)

	server *embed.Etcd
	done   chan struct{}
	stop   chan struct{}
}

func (*etcd) Name() string { return "etcd" }

// Init removes the sockets of an earlier run.
func (*etcd) Init(context.Context) error {
	for _, name := range []string{"etcd.sock", "etcd-peer.sock"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old socket: %w", err)
		}
	}
	return nil
}

func (e *etcd) Start(context.Context) error {
	cfg := embed.NewConfig()
	cfg.Dir = "etcd"
	client, peer := url.URL{Scheme: "unix", Host: "etcd.sock"}, url.URL{Scheme: "unix", Host: "etcd-peer.sock"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.EnableGRPCGateway = false
	cfg.LogLevel = "warn"
	cfg.UnsafeNoFsync = !e.durable
	// A small cluster that is used for weeks: compact what Kubernetes' own compaction leaves, and allow 4 GiB.
	cfg.QuotaBackendBytes = 4 << 30
	// With one member, elections only cost time at the start.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	e.server, e.done, e.stop = server, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(e.done)
		select {
		case err := <-server.Err():
			e.failed(fmt.Errorf("etcd: %w", err))
		case <-e.stop:
		}
	}()
	return nil
}

func (e *etcd) Ready(ctx context.Context) error {
	select {
	case <-e.server.Server.ReadyNotify():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *etcd) Stop(context.Context) error {
	if e.server == nil {
		return nil
	}
	close(e.stop)
	<-e.done
	e.server.Close()
	return nil
}
