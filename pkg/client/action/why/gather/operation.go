package gather

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// Kinds of operations, as OperationOf reads them.
const (
	Snapshot = "snapshot"
	Restore  = "restore"
	Clone    = "clone"
)

// OperationOf reads a word for one of the kinds.
func OperationOf(word string) (string, bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".") // virtualmachinesnapshots.snapshot.kubevirt.io
	word = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(word, "s"), "virtualmachine"), "vm")
	switch word {
	case Snapshot, Restore, Clone:
		return word, true
	}
	return "", false
}

// Operation reads everything about a snapshot, restore or clone.
func Operation(ctx context.Context, c *client.Client, kind, namespace, name string) (why.OperationFacts, error) {
	f := why.OperationFacts{Namespace: namespace, Name: name}
	var err error
	switch kind {
	case Snapshot:
		if f.Snapshot, err = snapshot.Get(ctx, c, namespace, name); err != nil {
			return f, err
		}
		f.Content, err = snapshot.Content(ctx, c, f.Snapshot)
		if err = unread(&f, err, "virtualmachinesnapshotcontents"); err != nil {
			return f, err
		}
		_, err = c.VM(ctx, namespace, f.Snapshot.Spec.Source.Name)
		f.NoSource = apierrors.IsNotFound(err)
		return f, unread(&f, err, "virtualmachines")
	case Restore:
		if f.Restore, err = snapshot.GetRestore(ctx, c, namespace, name); err != nil {
			return f, err
		}
		target := f.Restore.Spec.Target.Name
		vmi, err := c.VMI(ctx, namespace, target)
		f.Running = err == nil && !vmi.IsFinal()
		if err = unread(&f, err, "virtualmachineinstances"); err != nil {
			return f, err
		}
		_, err = c.VM(ctx, namespace, target)
		f.NoTarget = apierrors.IsNotFound(err)
		if err = unread(&f, err, "virtualmachines"); err != nil {
			return f, err
		}
		_, err = snapshot.Get(ctx, c, namespace, f.Restore.Spec.VirtualMachineSnapshotName)
		f.NoSource = apierrors.IsNotFound(err)
		return f, unread(&f, err, "virtualmachinesnapshots")
	}
	if f.Clone, err = clone.Get(ctx, c, namespace, name); err != nil || f.Clone.Spec.Source == nil {
		return f, err
	}
	source, resource := f.Clone.Spec.Source, "virtualmachines"
	from := clones.SourceNamespace(f.Clone)
	switch source.Kind {
	case clones.KindSnapshot:
		resource = "virtualmachinesnapshots"
		_, err = snapshot.Get(ctx, c, from, source.Name)
	case clones.KindClaim:
		resource = client.Claims
		_, err = c.ReadMetadata(ctx, "/api/v1/namespaces/"+from+"/"+client.Claims+"/"+source.Name)
	default:
		_, err = c.VM(ctx, from, source.Name)
	}
	f.NoSource = apierrors.IsNotFound(err)
	return f, unread(&f, err, resource)
}

// unread notes what the user may not read. What does not exist is a fact.
func unread(f *why.OperationFacts, err error, resource string) error {
	switch {
	case apierrors.IsForbidden(err):
		f.Unreadable = append(f.Unreadable, resource)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}
