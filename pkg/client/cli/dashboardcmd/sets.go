package dashboardcmd

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/store"
)

func kindOf(s *store.Set) sets.Kind {
	if s.Resource == store.Pools {
		return sets.Pool
	}
	return sets.ReplicaSet
}

func (a *actions) WhySet(ctx context.Context, s *store.Set) (*why.Report, error) {
	facts, err := gather.Set(ctx, a.client, kindOf(s), s.Namespace, s.Name, a.factory.Now())
	if err != nil {
		return nil, err
	}
	return why.ExplainSet(facts), nil
}

func (a *actions) Scale(ctx context.Context, s *store.Set, replicas int32) error {
	_, err := sets.Scale(ctx, a.client, sets.Request{
		Kind: kindOf(s), Namespace: s.Namespace, Name: s.Name, UID: s.UID, Replicas: replicas, Current: &s.Desired,
	})
	return a.noted(err, "scale", kindOf(s).Short+"/"+s.Name)
}

// DeleteSet deletes the set that was shown, not another of its name.
func (a *actions) DeleteSet(ctx context.Context, s *store.Set) error {
	kind, opts := kindOf(s), metav1.DeleteOptions{}
	if s.UID != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &s.UID}
	}
	if err := a.client.DeleteObject(ctx, kind.Group, s.Namespace, kind.Resource, s.Name, opts); err != nil {
		return fmt.Errorf("delete %s %s/%s: %w", kind.Short, s.Namespace, s.Name, err)
	}
	return a.noted(nil, lifecycle.Delete, kind.Short+"/"+s.Name)
}
