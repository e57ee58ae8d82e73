package why

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	volumes "github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// uploading explains a claim that is no disk before the upload of an image to it is complete: a guest does not start
// with it, and one that runs does not get it.
func (e *explanation) uploading(volume string, claim *corev1.PersistentVolumeClaim) bool {
	message := uploads.Unusable(claim.Name, claim.Annotations)
	if message == "" {
		return false
	}
	if e.VMI != nil && e.VMI.Status.Phase == v1.Running {
		status := volumes.Status(wait.State{VMI: e.VMI}, volume)
		if status == nil || status.Reason != names.ReasonUploadIncomplete {
			return false // the guest has it
		}
	}
	upload := "virtctl image-upload pvc " + claim.Name + e.flag()
	state, fix := Broken, upload+" --image-path FILE"
	if request := uploads.RequestOf(claim.Annotations); request != nil && !request.Cancel {
		state, fix = Waiting, "when nobody sends it any more: "+upload+" --cancel"
	}
	e.add(rankVolume, LayerVolumes, "pvc/"+claim.Name, state, names.ReasonUploadIncomplete,
		fmt.Sprintf("volume %q: %s", volume, message), fix)
	return true
}
