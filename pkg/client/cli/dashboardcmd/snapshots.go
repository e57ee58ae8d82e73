package dashboardcmd

import (
	"context"
	"fmt"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// snapshotGroup returns the API group of snapshots, restores or clones; empty for other resources.
func snapshotGroup(resource string) string {
	switch resource {
	case store.Snapshots, store.Restores, store.Contents:
		return snapshotv1beta1.SchemeGroupVersion.Group
	case store.Clones:
		return clonev1beta1.SchemeGroupVersion.Group
	}
	return ""
}

// followSnapshots feeds the page of snapshots, once somebody has looked at it.
func (s *session) followSnapshots(ctx context.Context, c *client.Client, w *page.World) {
	of := func(resource string) store.Source {
		return source(c, w.Pulse, snapshotv1beta1.SchemeGroupVersion, resource, w.Namespace)
	}
	t := w.Snapshots
	s.follow(func() { store.Feed(ctx, t.Snapshots, store.Snapshots, of(store.Snapshots), snapshot.Row) })
	s.follow(func() { store.Feed(ctx, t.Restores, store.Restores, of(store.Restores), snapshot.RestoreRow) })
	s.follow(func() { store.Feed(ctx, t.Contents, store.Contents, of(store.Contents), snapshot.ContentRow) })
	s.follow(func() {
		store.Feed(ctx, t.Clones, store.Clones,
			source(c, w.Pulse, clonev1beta1.SchemeGroupVersion, store.Clones, w.Namespace), clone.Row)
	})
	s.follow(func() {
		store.Feed(ctx, t.Volumes, store.VolumeSnapshots,
			source(c, w.Pulse, volumesnapshotv1.SchemeGroupVersion, store.VolumeSnapshots, w.Namespace),
			snapshot.VolumeSnapshotRow)
	})
}

// TakeSnapshot takes a snapshot of a machine.
func (a *actions) TakeSnapshot(ctx context.Context, machine lifecycle.Target, name string, o snapshot.Options) error {
	if err := a.same(ctx, machine); err != nil {
		return err
	}
	_, err := snapshot.Create(ctx, a.client, snapshot.New(machine.Namespace, machine.Name, name, o), false)
	return a.noted(err, "snapshot create", machine.Namespace+"/"+machine.Name)
}

// RestorePlan returns what a restore would do; that the target runs is part of that, not an error, and so is what it
// would do in place.
func (a *actions) RestorePlan(ctx context.Context, key store.Key, target string) (*snapshot.Plan, error) {
	return snapshot.LookInPlace(ctx, a.client, key.Namespace, key.Name,
		snapshot.RestoreOptions{Target: target, Stop: true})
}

// Restore asks for a restore, unless its target runs by now and is not to be stopped, or the snapshot is another one.
func (a *actions) Restore(ctx context.Context, key store.Key, o snapshot.RestoreOptions) (string, error) {
	plan, err := snapshot.Look(ctx, a.client, key.Namespace, key.Name, o)
	if err != nil {
		return "", err
	}
	name := "restore-" + key.Name + "-" + a.factory.RandomName(5)
	r, err := snapshot.CreateRestore(ctx, a.client,
		snapshot.NewRestore(key.Namespace, name, key.Name, plan.Target, o), false)
	if err != nil {
		return "", err
	}
	if plan.Exists {
		return r.Name, lifecyclecmd.RecordRestore(a.factory, r, plan.UID, o.Keep, "")
	}
	return r.Name, a.noted(nil, "snapshot restore", r.Namespace+"/"+r.Spec.Target.Name)
}

// Clone asks for a clone of a snapshot, if it is the one that was shown.
func (a *actions) Clone(ctx context.Context, s *store.Snapshot, o clone.Options) (string, error) {
	namespace := s.Namespace
	if err := a.sameSnapshot(ctx, s.Object(), s.UID); err != nil {
		return "", err
	}
	c, err := clone.Create(ctx, a.client, clone.New(namespace, "clone-"+a.factory.RandomName(5), o), false)
	if err != nil {
		return "", err
	}
	return c.Name, a.noted(nil, "clone", namespace+"/"+c.Name)
}

// sameSnapshot returns an error unless a snapshot is the one with a UID; who may not read it is not kept from it.
func (a *actions) sameSnapshot(ctx context.Context, key store.Key, uid types.UID) error {
	if uid == "" {
		return nil
	}
	s, err := snapshot.Get(ctx, a.client, key.Namespace, key.Name)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	case s.UID != uid:
		return &snapshot.SnapshotChangedError{Namespace: key.Namespace, Name: key.Name}
	}
	return nil
}

// DeleteSnapshot deletes a snapshot, restore or clone, if it is the one that was shown.
func (a *actions) DeleteSnapshot(ctx context.Context, s *store.Snapshot) error {
	var opts metav1.DeleteOptions
	if s.UID != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &s.UID}
	}
	group := "/apis/" + snapshotGroup(s.Resource) + "/" + snapshotv1beta1.SchemeGroupVersion.Version
	if err := a.client.DeleteObject(ctx, group, s.Namespace, s.Resource, s.Name, opts); err != nil {
		return fmt.Errorf("delete %s %s: %w", s.Short(), s.Object(), err)
	}
	return a.noted(nil, "snapshot delete", s.Short()+"/"+s.Name)
}

// WhySnapshot reports what a snapshot, restore or clone waits for.
func (a *actions) WhySnapshot(ctx context.Context, s *store.Snapshot) (*why.Report, error) {
	facts, err := gather.Operation(ctx, a.client, s.Short(), s.Namespace, s.Name)
	if err != nil {
		return nil, err
	}
	return why.ExplainOperation(facts), nil
}
