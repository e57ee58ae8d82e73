package dashboardcmd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func (a *actions) Claims(ctx context.Context, namespace string) ([]volume.Claim, bool, error) {
	return volume.Candidates(ctx, a.client, namespace)
}

func (a *actions) Plug(ctx context.Context, machine lifecycle.Target, o volume.Options) error {
	err := a.same(ctx, machine)
	if err == nil {
		err = volume.Add(ctx, a.client, machine.Namespace, machine.Name, o)
	}
	if err != nil {
		return err
	}
	return a.record(lifecycle.AddVolume, keyOf(machine), o.Instance)
}

func (a *actions) Unplug(ctx context.Context, machine lifecycle.Target, o volume.Options) error {
	err := a.same(ctx, machine)
	if err == nil {
		err = volume.Remove(ctx, a.client, machine.Namespace, machine.Name, o)
	}
	if err != nil {
		return err
	}
	return a.record(lifecycle.RemoveVolume, keyOf(machine), o.Instance)
}

func (a *actions) Resize(
	ctx context.Context, machine lifecycle.Target, name string, size resource.Quantity,
) error {
	r, err := volume.Look(ctx, a.client, machine.Namespace, machine.Name, name, machine.Instance)
	if err == nil {
		err = r.Check(size)
	}
	if err == nil {
		err = a.same(ctx, machine)
	}
	if err != nil {
		return err
	}
	_, err = volume.Resize(ctx, a.client, r, size, false)
	return a.noted(err, "volume resize", machine.Name)
}

func (a *actions) Move(ctx context.Context, machine lifecycle.Target, volumes []string, class string) error {
	if err := a.same(ctx, machine); err != nil {
		return err
	}
	back := fmt.Sprintf("`%s volume migrate %s --cancel --namespace %s`", a.factory.Program, machine.Name,
		machine.Namespace)
	m, err := volume.Plan(ctx, a.client, machine.Namespace, machine.Name, volume.MoveOptions{
		Volumes: volumes, To: volumemigration.Target{Class: class}, Back: back,
	})
	if err == nil {
		err = a.factory.CheckStorageClass(ctx, a.client, class)
	}
	if err != nil {
		return err
	}
	left, err := m.Start(ctx, a.client, false)
	if len(left) > 0 {
		err = fmt.Errorf("%w (%s)", err, strings.Join(left, "; "))
	}
	return a.noted(err, "volume migrate", machine.Name)
}

func (a *actions) CancelMove(ctx context.Context, machine lifecycle.Target) error {
	if err := a.same(ctx, machine); err != nil {
		return err
	}
	_, err := volume.Cancel(ctx, a.client, machine.Namespace, machine.Name, false)
	return a.noted(err, "volume migrate", machine.Name)
}

// same returns an error unless a machine is the one that was shown: it is gone, or another has its name by now.
func (a *actions) same(ctx context.Context, machine lifecycle.Target) error {
	if err := lifecycle.Same(ctx, a.client, machine); err != nil {
		return fmt.Errorf("%s: %w", machine, err)
	}
	return nil
}

func keyOf(machine lifecycle.Target) store.Key {
	return store.Key{Namespace: machine.Namespace, Name: machine.Name}
}

// record writes a change into the journal, as the commands do.
func (a *actions) record(verb lifecycle.Verb, key store.Key, instance bool) error {
	t := lifecycle.Target{Namespace: key.Namespace, Name: key.Name, Instance: instance}
	return lifecyclecmd.Record(a.factory, verb, t)
}
