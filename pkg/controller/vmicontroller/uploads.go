package vmicontroller

import (
	"context"
	"fmt"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// use finds the claims of the pods that are to be created which only wait for an upload.
func (s *Step) use(view View) {
	var used []string
	if s.CreatePod {
		used = bootClaimNames(view.VMI)
	}
	for _, planned := range s.Attachments {
		if volume := hotplug.Volume(&view.VMI.Spec, planned.For); volume != nil {
			used = append(used, claims.Name(volume))
		}
	}
	for _, name := range used {
		if claim := view.Claims[name]; claim != nil && len(uploads.Awaiting(claim.Annotations)) > 0 {
			s.Used = append(s.Used, claim)
		}
	}
}

// applyUsed writes that claims wait for no upload any more. It comes before their pods, so that an upload that is
// repeated once the guest has stopped never takes what the guest wrote for nothing.
func (r *Reconciler) applyUsed(ctx context.Context, step *Step) error {
	for _, claim := range step.Used {
		err := r.writes.Change(ctx, claim, func() {
			for _, key := range uploads.Awaiting(claim.Annotations) {
				delete(claim.Annotations, key)
			}
		})
		if err != nil {
			return fmt.Errorf("note that the guest uses claim %s, which waited for an upload: %w", claim.Name, err)
		}
	}
	return nil
}
