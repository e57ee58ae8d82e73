package dashboardcmd

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/store"
)

func (a *actions) Claims(ctx context.Context, namespace string) ([]volume.Claim, bool, error) {
	return volume.Candidates(ctx, a.client, namespace)
}

func (a *actions) Plug(ctx context.Context, key store.Key, o volume.Options) error {
	if err := volume.Add(ctx, a.client, key.Namespace, key.Name, o); err != nil {
		return err
	}
	return a.record(lifecycle.AddVolume, key, o.Instance)
}

func (a *actions) Unplug(ctx context.Context, key store.Key, o volume.Options) error {
	if err := volume.Remove(ctx, a.client, key.Namespace, key.Name, o); err != nil {
		return err
	}
	return a.record(lifecycle.RemoveVolume, key, o.Instance)
}

func (a *actions) Resize(
	ctx context.Context, key store.Key, instance bool, name string, size resource.Quantity,
) error {
	r, err := volume.Look(ctx, a.client, key.Namespace, key.Name, name, instance)
	if err == nil {
		err = r.Check(size)
	}
	if err != nil {
		return err
	}
	_, err = volume.Resize(ctx, a.client, r, size, false)
	return a.noted(err, "volume resize", key.Name)
}

// record writes a change into the journal, as the commands do.
func (a *actions) record(verb lifecycle.Verb, key store.Key, instance bool) error {
	t := lifecycle.Target{Namespace: key.Namespace, Name: key.Name, Instance: instance}
	return lifecyclecmd.Record(a.factory, verb, t)
}
