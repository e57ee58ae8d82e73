package vmicontroller

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// leftGrace is the time in which a launcher ends by itself after its guest has moved away; it needs a second or two.
const leftGrace = 30 * time.Second

// leave deletes the pods that a guest has left and that did not end as they should: one that was killed meanwhile,
// whose failure concerns nobody any more, and one that does not end. A pod that has completed stays for its log, but
// not where the guest's disks were copied to other claims: nobody could delete the old ones.
//
// Before the migration has ended nothing is deleted, since what the pod said last may say where the guest is.
func (s *Step) leave(view View) {
	guestPod, ms := life.GuestPod(view.VMI, view.Pods), view.VMI.Status.MigrationState
	if guestPod == nil || view.VMI.Status.Phase != v1.Running || ms == nil || ms.EndTimestamp == nil {
		return
	}
	for _, pod := range view.Pods {
		switch {
		case pod == guestPod || life.HasGuest(view.VMI, pod) || pod.DeletionTimestamp != nil ||
			!looksLikeLauncher(pod, view.VMI.UID):
		case guestPod.CreationTimestamp.Before(&pod.CreationTimestamp):
			// The guest may yet come to this one, and if not its migration deletes it.
		case pod.Status.Phase == corev1.PodFailed,
			pod.Status.Phase == corev1.PodSucceeded && volumemigration.Outdated(view.VMI, pod):
			s.DeletePods = append(s.DeletePods, pod)
		case pod.Status.Phase != corev1.PodSucceeded && migrations.Succeeded(ms) && pod.Name == ms.SourcePod &&
			guestPod.Name == ms.TargetPod:
			if left := leftGrace - view.Now.Sub(ms.EndTimestamp.Time); left > 0 {
				s.RequeueAfter = min(cmp.Or(s.RequeueAfter, left), left)
				continue
			}
			s.DeletePods = append(s.DeletePods, pod)
		}
	}
}
