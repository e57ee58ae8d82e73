package vm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/hotplug"
	"github.com/virtkit/virtkit/pkg/rollout"
)

// maxChanged is how many fields the condition RestartRequired names.
const maxChanged = 5

// restartMessage is the message of RestartRequired: KubeVirt's words, and the fields that the guest will have only when
// it is started again. A field that was taken out of the template is not named: what stands for it in the
// instance may be a default.
func restartMessage(view View) string {
	if why := tooLarge(view.VMI); why != "" {
		return "the guest cannot be given its new size while it runs: " + why
	}
	const message = "a non-live-updatable field was changed in the template spec"
	paths := changedFields(view)
	if len(paths) == 0 {
		return message
	}
	more := ""
	if left := len(paths) - maxChanged; left > 0 {
		paths, more = paths[:maxChanged], fmt.Sprintf(" and %d more", left)
	}
	for i, path := range paths {
		paths[i] = "spec.template.spec." + path
		if why := cmp.Or(view.Change.Refused[path], view.Volumes.Refused[path]); why != "" {
			paths[i] += " (" + why + ")"
		}
	}
	return message + ": " + strings.Join(paths, ", ") + more
}

func changedFields(view View) []string {
	if view.template() == nil {
		return nil
	}
	template, err := plain(*view.template())
	if err != nil {
		return nil // the message goes without
	}
	instance, err := plain(view.VMI.Spec)
	if err != nil {
		return nil
	}
	paths := slices.DeleteFunc(rollout.Beyond(template, instance), func(path string) bool { return ofPlugged(view.template(), path) })
	paths = append(paths, slices.Collect(maps.Keys(view.Volumes.Refused))...)
	slices.Sort(paths)
	return paths
}

// ofPlugged reports a field of a hotplugged volume, of its disk, or of an empty drive: what of these waits for the next start is known
// otherwise.
func ofPlugged(template *v1.VirtualMachineInstanceSpec, path string) bool {
	for _, list := range []string{"volumes[", "domain.devices.disks["} {
		rest, ok := strings.CutPrefix(path, list)
		name, _, _ := strings.Cut(rest, "]")
		if !ok {
			continue
		}
		volume, disk := hotplug.Volume(template, name), hotplug.Disk(template, name)
		return volume != nil && hotplug.Is(volume) || volume == nil && disk != nil && disk.CDRom != nil
	}
	return false
}

func plain(spec v1.VirtualMachineInstanceSpec) (map[string]any, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}
