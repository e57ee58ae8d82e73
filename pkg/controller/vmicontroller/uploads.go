package vmicontroller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// use finds the claims of the pods that are to be created which only wait for an upload. The pod before the VMI's
// writes nothing.
func (s *Step) use(view View) {
	var pods []*corev1.Pod
	for _, planned := range s.Pods {
		if planned.For == purposeLauncher {
			pods = append(pods, planned.Pod)
		}
	}
	for _, planned := range s.Attachments {
		pods = append(pods, planned.Pod)
	}
	s.Used = Used(view.Claims, pods...)
}

// Used returns the claims of pods, of those that are known by name, which only wait for an upload.
func Used(known map[string]*corev1.PersistentVolumeClaim, pods ...*corev1.Pod) []*corev1.PersistentVolumeClaim {
	var used []*corev1.PersistentVolumeClaim
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			source := pod.Spec.Volumes[i].PersistentVolumeClaim
			if source == nil {
				continue
			}
			claim := known[source.ClaimName]
			if claim != nil && len(uploads.Awaiting(claim.Annotations)) > 0 && !slices.Contains(used, claim) {
				used = append(used, claim)
			}
		}
	}
	return used
}

// NoteUsed writes that claims wait for no upload any more. It comes before their pods, so that an upload that is
// repeated once the guest has stopped never takes what the guest wrote for nothing.
func NoteUsed(ctx context.Context, writes *frame.Writes, used []*corev1.PersistentVolumeClaim) error {
	for _, claim := range used {
		err := writes.Change(ctx, claim, func() {
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
