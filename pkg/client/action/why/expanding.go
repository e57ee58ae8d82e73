package why

import (
	"fmt"

	"github.com/virtkit/virtkit/pkg/vm/expansion"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// expanding explains what volumes that are resized wait for: the storage, the node, the guest's next start, or its
// disk.
func (e *explanation) expanding() {
	runs := e.VMI != nil && life.Running(e.VMI)
	for i := range e.Spec().Volumes {
		volume, name := e.Spec().Volumes[i].Name, ClaimName(&e.Spec().Volumes[i])
		found := e.Claims[name]
		if found == nil {
			continue
		}
		under := expansion.Of(found)
		if under == nil {
			continue
		}
		rank, state, reason := rankProgress, Waiting, "VolumeExpanding"
		message, describe := fmt.Sprintf("volume %q: %s", volume, under), "kubectl describe pvc "+name+e.flag()
		switch {
		case under.Failure != "":
			rank, state, reason = rankVolume, Broken, "VolumeExpansionFailed"
		case under.OnNode && !runs:
			rank, state = rankRemark, OK
			message = fmt.Sprintf("volume %q: claim %s grows from %s to %s when a guest starts with it", volume, name,
				&under.Has, &under.To)
			if under.Earlier() {
				message += fmt.Sprintf("; the storage goes on to %s only then", &under.Wants)
			}
		}
		e.add(rank, LayerVolumes, "pvc/"+name, state, reason, message, describe)
	}
	if !runs {
		return
	}
	if c := expansion.ConditionOf(e.VMI); c != nil && c.Reason == expansion.ReasonGuest {
		e.add(rankProgress, LayerVolumes, e.vmiObject(), Waiting, "DiskExpanding",
			"the claims have grown, and not the guest's disks: "+c.Message,
			"virtctl logs "+e.Name+e.flag()+" --source launcher")
	}
}
