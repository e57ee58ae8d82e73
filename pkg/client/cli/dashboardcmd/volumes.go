package dashboardcmd

import (
	"context"

	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/store"
)

func (a *actions) Claims(ctx context.Context, namespace string) ([]volume.Claim, bool, error) {
	return volume.Candidates(ctx, a.client, namespace)
}

func (a *actions) Plug(ctx context.Context, key store.Key, o volume.Options) error {
	return volume.Add(ctx, a.client, key.Namespace, key.Name, o)
}

func (a *actions) Unplug(ctx context.Context, key store.Key, o volume.Options) error {
	return volume.Remove(ctx, a.client, key.Namespace, key.Name, o)
}
