package rollout

import (
	"reflect"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// The lists of a VM's volumes and disks.
const (
	volumesPath = "spec.template.spec.volumes"
	disksPath   = "spec.template.spec.domain.devices.disks"
)

// The notes on volumes that come and go.
const (
	notePlug   = "plugs the disk in"
	noteUnplug = "unplugs the disk"
	noteChange = "unplugs the disk and plugs it in as it is then"
	noteInject = "puts the disc into the drive"
	noteEject  = "takes the disc out of the drive"
	noteSwap   = "swaps the disc in the drive"
	noteDrive  = "a CD-ROM drive comes, goes and changes only then"
	noteCopy   = "copies the disk to the new claim"
	noteBack   = "cancels the copy, nothing is copied"
	noteKeep   = "such a disk is not copied, nor unplugged"
)

// EffectIn does what EffectOf does, for one of the changes between two versions of a VirtualMachine, which say whether
// a volume or disk may come and go while the guest runs.
func EffectIn(c Change, before, after map[string]any, running bool) (Effect, string) {
	name, ofVolume := element(c.Path, volumesPath)
	if !ofVolume {
		var ofDisk bool
		if name, ofDisk = element(c.Path, disksPath); !ofDisk {
			return EffectOf(c, running)
		}
	}
	if !running {
		return Start, ""
	}
	had, has := plan(before, name), plan(after, name)
	if ofVolume && copies(after) && had.copied(has) {
		return Migration, noteCopy
	}
	if ofVolume && copies(after) && had.kept(has) {
		return Restart, noteKeep
	}
	if had.fixed() || has.fixed() {
		return EffectOf(c, running)
	}
	same := reflect.DeepEqual(had.disk, has.disk)
	stays := had.drive() && (same || !had.comes())
	switch gone, new := has.volume == nil, had.volume == nil; {
	case gone && new && !had.drive() && !has.drive():
		return EffectOf(c, running)
	case gone && new, stays && !same && (!ofVolume || new), !stays && has.drive() && !has.comes(),
		!stays && had.drive() && new:
		return Restart, noteDrive
	case stays && new:
		return Hotplug, noteInject
	case stays && gone:
		return Hotplug, noteEject
	case stays:
		return Hotplug, noteSwap
	case new:
		return Hotplug, notePlug
	case gone:
		return Hotplug, noteUnplug
	}
	return Hotplug, noteChange
}

// element returns the name of the element of a list that a path leads to.
func element(path, list string) (string, bool) {
	rest, ok := strings.CutPrefix(path, list+"[")
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "]")
	return name, ok
}

// copied returns when the other claim of a disk takes effect that is copied while its guest runs.
func (g Guest) copied(d decision, path string, c Change) (Effect, string) {
	switch {
	case d.moves.Reverts:
		return Live, noteBack
	case d.moves.Waiting:
		return Migration, noteCopy
	case d.moves.Volumes == nil && (!g.Staged || d.backAgain(path, c)):
		return Live, noteHas
	case d.moves.Volumes == nil:
		return Restart, ""
	}
	if g.Claims != nil {
		if why := d.moves.WaitsFor(g.Instance, g.Claims); why != "" {
			return Migration, noteCopy + ", and waits for that: " + why
		}
	}
	return Migration, noteCopy
}

// reverts reports a field of a volume that gets back the claim from which its disk is being copied.
func (d decision) reverts(vmi *v1.VirtualMachineInstance, path string) bool {
	name, ok := element(path, "volumes")
	return ok && d.moves.Reverts && slices.ContainsFunc(volumemigration.Moves(vmi),
		func(m volumemigration.Move) bool { return m.Volume == name })
}

// planned is a volume and its disk; either may be nil.
type planned struct{ volume, disk map[string]any }

func plan(vm map[string]any, name string) planned {
	return planned{entry(vm, name, "volumes"), entry(vm, name, "domain", "devices", "disks")}
}

// entry returns the element of a name in a list of the template's spec.
func entry(vm map[string]any, name string, path ...string) map[string]any {
	at := vm
	for _, key := range append([]string{"spec", "template", "spec"}, path[:len(path)-1]...) {
		at, _ = at[key].(map[string]any)
	}
	list, _ := at[path[len(path)-1]].([]any)
	for _, element := range list {
		if fields, ok := element.(map[string]any); ok && fields["name"] == name {
			return fields
		}
	}
	return nil
}

// copies reports a VM whose disks are copied when its volumes name other claims.
func copies(vm map[string]any) bool {
	spec, _ := vm["spec"].(map[string]any)
	return spec["updateVolumesStrategy"] == string(v1.UpdateVolumesStrategyMigration)
}

// copied reports a disk that is copied to another claim while its guest runs (volumemigration.Follow): it stays as it
// is, and the guest may write it alone.
func (p planned) copied(to planned) bool {
	_, disk := p.disk["disk"].(map[string]any)
	alike := p.fixed() && to.fixed() || hotpluggable(p.volume) && hotpluggable(to.volume)
	return alike && ofClaim(p.volume) && ofClaim(to.volume) && reflect.DeepEqual(p.disk, to.disk) &&
		disk && p.disk["shareable"] != true && p.disk["disk"].(map[string]any)["readonly"] != true
}

// kept reports a disk that was plugged in and whose volume names another claim (volumemigration.KeepPlugged).
func (p planned) kept(to planned) bool {
	return hotpluggable(p.volume) && hotpluggable(to.volume) && p.disk != nil && !p.drive() &&
		claimNamed(p.volume) != claimNamed(to.volume)
}

// claimNamed returns the name of a volume's claim.
func claimNamed(volume map[string]any) any {
	if filled, ok := volume["dataVolume"].(map[string]any); ok {
		return filled["name"]
	}
	claim, _ := volume["persistentVolumeClaim"].(map[string]any)
	return claim["claimName"]
}

// ofClaim reports a volume that is a claim which the guest may write.
func ofClaim(volume map[string]any) bool {
	claim, ok := volume["persistentVolumeClaim"].(map[string]any)
	_, filled := volume["dataVolume"].(map[string]any)
	return ok && claim["readOnly"] != true || filled
}

// fixed reports a volume that is there from the start only.
func (p planned) fixed() bool { return p.volume != nil && !hotpluggable(p.volume) }

func (p planned) drive() bool {
	_, ok := p.disk["cdrom"]
	return ok
}

// comes reports a disk that can come to a guest that runs: any but a drive on sata, which is the default.
func (p planned) comes() bool {
	drive, _ := p.disk["cdrom"].(map[string]any)
	return !p.drive() || drive["bus"] == "scsi"
}
