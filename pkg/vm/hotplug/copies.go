package hotplug

import (
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// CopiesAnnotation is on a VMI with hotplugged volumes whose disks are copied to other claims: JSON of a map of Copy by
// volume. It is written together with the claims in the spec. Without it another claim in the spec means that the disk
// is unplugged, and the other claim plugged in.
const CopiesAnnotation = reserved.CopiedPlugged

// Copy is the claim from which the disk of a hotplugged volume is copied, and the one to which.
type Copy struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Copied reports whether the disk of a hotplugged volume is copied to the claim that the VMI's spec names: its guest
// uses the other claim of CopiesAnnotation yet.
func Copied(vmi *v1.VirtualMachineInstance, volume *v1.Volume) bool {
	_, copied := copyOf(vmi, copies(vmi), volume)
	return copied
}

func copyOf(
	vmi *v1.VirtualMachineInstance, noted map[string]Copy, volume *v1.Volume,
) (c Copy, copied bool) {
	c, copied = noted[volume.Name]
	return c, copied && Is(volume) && c.From != c.To && c.To == claims.Name(volume) && c.From == inUse(vmi, volume.Name)
}

// copies reads CopiesAnnotation. What is no JSON was not written by virtkit, and says nothing.
func copies(vmi *v1.VirtualMachineInstance) map[string]Copy {
	var out map[string]Copy
	if text := vmi.Annotations[CopiesAnnotation]; text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// inUse returns the claim that the guest uses for a volume, "" when it is not known.
func inUse(vmi *v1.VirtualMachineInstance, volume string) string {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == volume && s.PersistentVolumeClaimInfo != nil {
			return s.PersistentVolumeClaimInfo.ClaimName
		}
	}
	return ""
}

// NoteCopies returns CopiesAnnotation's value for a VMI whose spec has other volumes from then on; "" takes it away.
// copied reports the volumes whose disks are copied to the claims that are new there; what is being copied still is.
func NoteCopies(
	vmi *v1.VirtualMachineInstance, next []v1.Volume, copied func(volume string) bool,
) (string, error) {
	noted, out := copies(vmi), map[string]Copy{}
	for i := range next {
		v := &next[i]
		if c, still := copyOf(vmi, noted, v); still {
			out[v.Name] = c
			continue
		}
		from, to := inUse(vmi, v.Name), claims.Name(v)
		if Is(v) && copied(v.Name) && from != "" && from != to {
			out[v.Name] = Copy{from, to}
		}
	}
	if len(out) == 0 {
		return "", nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("encode what is copied: %w", err)
	}
	return string(text), nil
}

// AtSource returns a VMI as the node is to see it on which its guest is: hotplugged volumes whose disks are copied have
// the claims from which. The VMI itself has those of the target. The result must not be written to.
func AtSource(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	noted := copies(vmi)
	if len(noted) == 0 {
		return vmi
	}
	out := *vmi
	out.Spec.Volumes = make([]v1.Volume, len(vmi.Spec.Volumes))
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		out.Spec.Volumes[i] = *v
		if c, copied := copyOf(vmi, noted, v); copied {
			out.Spec.Volumes[i] = *On(v, c.From)
		}
	}
	return &out
}

// On returns a volume on a claim, in place of one on another or of a DataVolume.
func On(volume *v1.Volume, claim string) *v1.Volume {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	if was := claims.Of(volume); was != nil {
		source = was
	}
	source.ClaimName = claim
	return &v1.Volume{Name: volume.Name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
}
