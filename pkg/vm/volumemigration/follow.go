package volumemigration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// MovedAnnotation is on a VMI whose disks have been copied, or are: the volumes, by name, as they were when the VMI was
// made. What the VMI was made from is known by a checksum of the whole template (rollout.TemplateHash), which has them.
const MovedAnnotation = reserved.MovedVolumes

// onlyBack is KubeVirt's rule for a change of volumes that are being copied.
const onlyBack = "its disk is being copied; the volume can only be reverted to the claim that it had"

// Decision says what a VM's changed claims mean for its VMI.
type Decision struct {
	// Volumes are the VMI's volumes as they should be; nil leaves them.
	Volumes []v1.Volume
	// Reverts says that Volumes are those that the guest uses: what was under way is cancelled.
	Reverts bool
	// Waiting says that a change is to be taken over later: the guest is just migrating.
	Waiting bool
	// Refused are the volumes whose disks are not copied, with the reason, by their path in the VMI's spec. What
	// becomes of them at the next start is what AtStart says.
	Refused map[string]string
}

// Follow decides, for a VM whose template's spec is template, and its VMI, whose guest runs. strategy is the VM's
// updateVolumesStrategy.
func Follow(
	strategy *v1.UpdateVolumesStrategy, template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
) Decision {
	changed := changes(template, vmi)
	if strategy == nil || *strategy != v1.UpdateVolumesStrategyMigration {
		changed = slices.DeleteFunc(changed, func(m Move) bool { return unplugs(vmi, m.Volume) })
	}
	switch moving := Moves(vmi); {
	case len(changed) == 0:
		return Decision{}
	case len(moving) > 0:
		if back(moving, changed) {
			return Decision{Volumes: take(template, vmi, changed), Reverts: true}
		}
		return refuse(changed, func(Move) string { return onlyBack })
	case strategy == nil || *strategy != v1.UpdateVolumesStrategyMigration:
		return Decision{} // they are replaced at the next start
	}
	if why := stays(vmi, changed); why != "" {
		return refuse(changed, func(Move) string { return why })
	}
	if d := refuse(changed, func(m Move) string { return unmovable(template, vmi, m) }); d.Refused != nil {
		return d
	}
	if migrations.UnderWay(vmi) || len(vmi.Status.MigratedVolumes) > 0 {
		return Decision{Waiting: true}
	}
	return Decision{Volumes: take(template, vmi, changed)}
}

// Stay decides as Follow does where no guest that runs follows its VM (vmRolloutStrategy Stage): nothing is copied.
func Stay(
	strategy *v1.UpdateVolumesStrategy, template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance,
) Decision {
	if strategy == nil || *strategy != v1.UpdateVolumesStrategyMigration {
		return Decision{}
	}
	return refuse(changes(template, vmi), func(m Move) string {
		return cmp.Or(exchanged(vmi, m.Volume), "vmRolloutStrategy is Stage, by which no guest that runs changes")
	})
}

// WaitsFor returns what the copies of a Decision that is not taken over yet will wait for, in the words of Condition;
// "" when nothing is known. found are the claims that exist, by name.
func (d Decision) WaitsFor(vmi *v1.VirtualMachineInstance, found map[string]*corev1.PersistentVolumeClaim) string {
	if d.Volumes == nil || d.Reverts {
		return ""
	}
	then := vmi.DeepCopy()
	then.Spec.Volumes = d.Volumes
	if err := NoteCopies(vmi, then, true); err != nil {
		return err.Error()
	}
	_, why := Describe(then, found)
	return why
}

// unstarted is added to why a disk of the kind that is copied is not copied.
const unstarted = "; nothing is copied, and the VM does not start with the new claim: revert the volume, or, if the " +
	"claim is to be used as it is, set updateVolumesStrategy to Replacement"

// AtStart returns Refused with what becomes of the volumes at the next start, where that is not that their claims are
// exchanged: Uncopied.
func (d Decision) AtStart(vmi *v1.VirtualMachineInstance) map[string]string {
	out := map[string]string{}
	for path, why := range d.Refused {
		volume := strings.TrimSuffix(strings.TrimPrefix(path, "volumes["), "]")
		if exchanged(vmi, volume) == "" {
			why += unstarted
		}
		out[path] = why
	}
	return out
}

// changes returns the volumes for which a template names another claim than a VMI's spec does.
func changes(template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance) []Move {
	var out []Move
	for i := range vmi.Spec.Volumes {
		is := &vmi.Spec.Volumes[i]
		want := hotplug.Volume(template, is.Name)
		if want == nil || !follows(vmi, is, want) {
			continue
		}
		if from, to := claims.Name(is), claims.Name(want); from != to {
			out = append(out, Move{is.Name, from, to})
		}
	}
	return out
}

// back reports whether the changes take back all moves, and nothing else.
func back(moving, changed []Move) bool {
	return len(moving) == len(changed) && !slices.ContainsFunc(moving, func(m Move) bool {
		to, ok := moveOf(changed, m.Volume)
		return !ok || to.To != m.From
	})
}

// refuse returns a Decision that names all volumes for which why has a reason; its Refused is nil when there is none.
func refuse(changed []Move, why func(Move) string) Decision {
	var d Decision
	for _, m := range changed {
		text := why(m)
		if text == "" {
			continue
		}
		if d.Refused == nil {
			d.Refused = map[string]string{}
		}
		d.Refused["volumes["+m.Volume+"]"] = text
	}
	return d
}

// stays returns why no disk of a VMI can be copied to another claim: the guest itself cannot move, or another disk
// keeps it.
func stays(vmi *v1.VirtualMachineInstance, changed []Move) string {
	if c := immovable(vmi); c != nil {
		return "the guest cannot migrate: " + c.Message
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		s := statusOf(vmi.Status.VolumeStatus, v.Name)
		if _, moves := moveOf(changed, v.Name); moves || claims.Name(v) == "" || s == nil {
			continue
		}
		if info := s.PersistentVolumeClaimInfo; !OnBothNodes(info, claims.Of(v).ReadOnly) {
			return fmt.Sprintf("volume %q stays on PersistentVolumeClaim %s, which cannot be used on two nodes at "+
				"once; give it another claim in the same change", v.Name, claims.Name(v))
		}
	}
	return ""
}

// OnBothNodes reports whether two nodes can use a claim at once.
func OnBothNodes(info *v1.PersistentVolumeClaimInfo, readOnly bool) bool {
	return info != nil &&
		(slices.Contains(info.AccessModes, corev1.ReadWriteMany) ||
			readOnly && slices.Contains(info.AccessModes, corev1.ReadOnlyMany))
}

// unmovable returns why the disk of one volume cannot be copied while the guest runs.
func unmovable(template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance, m Move) string {
	for i := range template.Volumes {
		if v := &template.Volumes[i]; v.Name != m.Volume && claims.Name(v) == m.To {
			return fmt.Sprintf("volume %q has PersistentVolumeClaim %s, too", v.Name, m.To)
		}
	}
	return Fixed(vmi, m.Volume)
}

// Fixed returns why the disk of a volume on a claim cannot be copied to another while the guest runs, whatever the
// other disks are; "" when it can be.
func Fixed(vmi *v1.VirtualMachineInstance, volume string) string {
	if why := exchanged(vmi, volume); why != "" {
		return why
	}
	if v := hotplug.Volume(&vmi.Spec, volume); hotplug.Is(v) {
		if s := statusOf(vmi.Status.VolumeStatus, volume); s == nil || s.Phase != v1.VolumeReady ||
			s.PersistentVolumeClaimInfo == nil {
			return "it is not plugged in, or is just being unplugged; its disk is copied once the guest has it"
		}
	}
	if InUse(&vmi.Status, volume) == "" {
		return "it is not known which claim the guest has; it was started by an earlier version"
	}
	return ""
}

// exchanged returns why the disk of a volume on a claim is never copied, so that the next start exchanges its claim;
// "" when it is of the kind that is copied. What is being copied is.
func exchanged(vmi *v1.VirtualMachineInstance, volume string) string {
	d, now := hotplug.Disk(&vmi.Spec, volume), hotplug.Volume(&vmi.Spec, volume)
	switch {
	case now == nil:
		return "the guest does not have it yet"
	case filesystems.Of(&vmi.Spec, volume) != nil:
		return "it is a file system (virtiofs), which cannot be copied"
	case d == nil:
		return "no disk of the guest has it"
	case d.LUN != nil:
		return "it is a LUN, which cannot be copied"
	case d.Shareable != nil && *d.Shareable:
		return "its disk is shareable, and another guest may write while it is copied"
	case d.CDRom != nil, d.Disk != nil && d.Disk.ReadOnly, claims.Of(now).ReadOnly:
		return "its disk is read-only, and only disks that the guest may write are copied"
	}
	return ""
}

// take returns a VMI's volumes with those of the template for which it names another claim.
func take(
	template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance, changed []Move,
) []v1.Volume {
	out := slices.Clone(vmi.Spec.Volumes)
	for i := range out {
		if _, ok := moveOf(changed, out[i].Name); ok {
			out[i] = *hotplug.Volume(template, out[i].Name).DeepCopy()
		}
	}
	return out
}

// Remember returns MovedAnnotation's value for a VMI whose volumes are about to be others.
func Remember(vmi *v1.VirtualMachineInstance, next []v1.Volume) (string, error) {
	known := originals(vmi)
	for i := range next {
		was := hotplug.Volume(&vmi.Spec, next[i].Name)
		if _, ok := known[next[i].Name]; ok || was == nil || claims.Name(was) == claims.Name(&next[i]) {
			continue
		}
		known[was.Name] = *was
	}
	text, err := json.Marshal(known)
	if err != nil {
		return "", fmt.Errorf("encode the volumes: %w", err)
	}
	return string(text), nil
}

// originals returns what MovedAnnotation says. What is no JSON was written by nobody, and says nothing.
func originals(vmi *v1.VirtualMachineInstance) map[string]v1.Volume {
	out := map[string]v1.Volume{}
	if text := vmi.Annotations[MovedAnnotation]; text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return map[string]v1.Volume{}
	}
	return out
}

// AsMade returns a template's spec with the volumes that a VMI has taken over since it was made as they were then.
func AsMade(template *v1.VirtualMachineInstanceSpec, vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceSpec {
	made := originals(vmi)
	if len(made) == 0 {
		return template
	}
	out := *template
	out.Volumes = slices.Clone(template.Volumes)
	for i := range out.Volumes {
		was, moved := made[out.Volumes[i].Name]
		if now := hotplug.Volume(&vmi.Spec, out.Volumes[i].Name); moved && now != nil &&
			claims.Name(now) == claims.Name(&out.Volumes[i]) {
			out.Volumes[i] = was
		}
	}
	return &out
}
