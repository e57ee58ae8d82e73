package gather

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// mostMembers are how many machines of a set are looked into; they mostly have the same trouble.
const mostMembers = 5

// Set reads everything about a pool or replica set and its machines that are not ready.
func Set(
	ctx context.Context, c *client.Client, kind sets.Kind, namespace, name string, now time.Time,
) (why.SetFacts, error) {
	f := why.SetFacts{Kind: kind.Short}
	set, err := sets.Get(ctx, c, kind, namespace, name)
	if apierrors.IsNotFound(err) {
		return f, action.NotFound(kind.Qualified(), namespace, name)
	}
	if err != nil {
		return f, err
	}
	f.Set = sets.RowOf(set)
	var short []string
	add := func(o metav1.Object, ready bool) {
		switch owner := metav1.GetControllerOf(o); {
		case owner == nil || owner.UID != set.GetUID():
		case ready:
			f.Ready = append(f.Ready, o.GetName())
		default:
			short = append(short, o.GetName())
		}
	}
	if kind == sets.Pool {
		list, err := c.VMList(ctx, namespace, metav1.ListOptions{})
		switch {
		case err == nil:
			for i := range list.Items {
				add(&list.Items[i], list.Items[i].Status.Ready)
			}
		case apierrors.IsForbidden(err):
			f.Unreadable = append(f.Unreadable, "virtualmachines")
		default:
			return f, err
		}
	} else {
		list, err := c.VMIList(ctx, namespace, metav1.ListOptions{})
		switch {
		case err == nil:
			for i := range list.Items {
				add(&list.Items[i], isReady(&list.Items[i]))
			}
		case apierrors.IsForbidden(err):
			f.Unreadable = append(f.Unreadable, "virtualmachineinstances")
		default:
			return f, err
		}
	}
	slices.Sort(short)
	f.More = max(0, len(short)-mostMembers)
	for _, member := range short[:len(short)-f.More] {
		facts, err := Facts(ctx, c, namespace, member, now)
		if err != nil && !errors.Is(err, action.ErrNotFound) {
			return f, err
		}
		f.Short = append(f.Short, facts)
	}
	return f, nil
}

func isReady(vmi *v1.VirtualMachineInstance) bool {
	return conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
}
