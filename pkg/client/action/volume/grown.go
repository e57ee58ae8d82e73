package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

// claimPause is the pause between two looks at a claim that grows.
const claimPause = 250 * time.Millisecond

// GrownAPI has the methods of a client that AwaitGrown calls.
type GrownAPI interface {
	ResizeAPI
	wait.API
}

// Grown says how far a volume has got.
type Grown struct {
	// Claim is its size; Disk is that of the guest's disk, bytes, 0 when no guest runs or it is no disk.
	Claim resource.Quantity
	Disk  int64
	// AtStart: no guest runs, and the rest of it is done when one does.
	AtStart bool
}

// AwaitGrown waits until the storage has given a claim its size, and the disk of the guest that runs has it. When no
// guest runs, and the storage waits for one before it begins, that is an error.
func AwaitGrown(ctx context.Context, api GrownAPI, r *Resizable, name string, size resource.Quantity) (Grown, error) {
	namespace, claim, volume := r.Claim.Namespace, r.Claim.Name, r.Volume.Name
	var out Grown
	for {
		var at corev1.PersistentVolumeClaim
		err := api.Read(ctx, claimPath(namespace, claim), nil, &at)
		vmi, vmiErr := api.VMI(ctx, namespace, name)
		runs := vmiErr == nil && !vmi.IsFinal()
		if apierrors.IsNotFound(vmiErr) {
			vmiErr = nil
		}
		err = errors.Join(err, vmiErr)
		if err != nil && ctx.Err() == nil && !client.Passing(err) {
			return out, fmt.Errorf("wait for claim %s: %w", claim, err)
		}
		if err == nil {
			under := expansion.Of(&at)
			out.Claim, _ = Sizes(&at)
			if out.AtStart = !runs && under != nil && under.OnNode; out.AtStart {
				if under.To.Cmp(size) < 0 {
					return out, fmt.Errorf("claim %s was to grow to %s before, which its node does when a guest "+
						"starts with it; the storage goes on to %s only then", claim, &under.To, &size)
				}
				return out, nil
			}
			if out.Claim.Cmp(size) >= 0 {
				if !runs {
					return out, nil
				}
				break
			}
			if action.Sleep(ctx, claimPause) != nil {
				return out, overdue(ctx, under, claim)
			}
			continue
		}
		if action.Sleep(ctx, claimPause) != nil {
			return out, overdue(ctx, nil, claim)
		}
	}
	state, err := wait.Until(ctx, api, namespace, name, r.hasSize(size))
	if status := Status(state, volume); status != nil {
		out.Disk = status.Size
	}
	if errors.Is(err, action.ErrTimeout) && state.VMI != nil {
		if c := expansion.ConditionOf(state.VMI); c != nil {
			err = fmt.Errorf("%w; %s", err, c.Message)
		}
	}
	return out, err
}

func overdue(ctx context.Context, under *expansion.Claim, claim string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if under == nil {
		return fmt.Errorf("%w waiting for claim %s to grow", action.ErrTimeout, claim)
	}
	return fmt.Errorf("%w: %s", action.ErrTimeout, under)
}

// hasSize holds when the guest's disk has the size of its claim, which is at least size, or no guest runs. The VMI's
// condition is about all of its volumes: as long as it stands because of another, the disk itself has to tell.
func (r *Resizable) hasSize(size resource.Quantity) wait.Condition {
	name := fmt.Sprintf("to have volume %s of %s", r.Volume.Name, &size)
	return wait.Condition{Name: name, Met: func(s wait.State) (bool, error) {
		if s.VMI == nil || s.VMI.IsFinal() {
			return true, nil
		}
		status := Status(s, r.Volume.Name)
		if status == nil || status.PersistentVolumeClaimInfo == nil || s.VMI.Status.Phase != v1.Running {
			return false, nil
		}
		has := status.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		return has.Cmp(size) >= 0 && (expansion.ConditionOf(s.VMI) == nil || r.grew(status, size)), nil
	}}
}

// grew reports whether a disk has grown since Look, or has the size; a shared file system has no disk that would. In a
// file a disk is smaller than its claim.
func (r *Resizable) grew(status *v1.VolumeStatus, size resource.Quantity) bool {
	if r.VMI == nil {
		return false
	}
	shared := slices.ContainsFunc(r.VMI.Spec.Domain.Devices.Filesystems,
		func(f v1.Filesystem) bool { return f.Name == r.Volume.Name })
	if shared || status.Size >= size.Value() {
		return true
	}
	before := Status(wait.State{VMI: r.VMI}, r.Volume.Name)
	return before != nil && before.Size > 0 && status.Size > before.Size
}
