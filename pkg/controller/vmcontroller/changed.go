package vmcontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// maxChanged is the number of fields that the condition RestartRequired names.
const maxChanged = 5

// restartMessage returns the message of RestartRequired: KubeVirt's words, and the fields that the guest will have only
// when it is started again. A field that was taken out of the template is not named: what stands for it in the VMI
// may be a default.
func restartMessage(view View) string {
	if why := tooLarge(view.VMI); why != "" {
		return "the guest cannot be given its new size while it runs: " + why
	}
	if why := rollout.Stuck(view.VMI); why != "" {
		return "the guest cannot be given its new interfaces or networks while it runs: " + why
	}
	const message = "a non-live-updatable field was changed in the template spec"
	if view.template() == nil {
		return message + ": it is not known which (" + view.unresolved() + ")"
	}
	paths := changedFields(view)
	refused := map[string]string{}
	maps.Copy(refused, view.plugging().Refused)
	maps.Copy(refused, view.placing().Refused)
	maps.Copy(refused, view.limiting().Refused)
	maps.Copy(refused, view.Change.Refused)
	maps.Copy(refused, view.claims().AtStart(view.VMI))
	for _, path := range slices.Sorted(maps.Keys(refused)) {
		if !slices.ContainsFunc(paths, func(p string) bool { return rollout.Within(p, path) }) {
			paths = append(paths, path) // what was taken out of the template
		}
	}
	maps.Copy(refused, view.Volumes.Refused)
	if len(paths) == 0 {
		return message + ": it was removed, or says now what the guest has anyway"
	}
	more := ""
	if left := len(paths) - maxChanged; left > 0 {
		paths, more = paths[:maxChanged], fmt.Sprintf(" and %d more", left)
	}
	for i, path := range paths {
		if !strings.HasPrefix(path, "spec.") { // as what is beside the template's spec
			paths[i] = "spec.template.spec." + path
		}
		if why := refused[path]; why != "" {
			paths[i] += " (" + why + ")"
		}
	}
	return message + ": " + strings.Join(paths, ", ") + more
}

// unresolved returns why the view has no template: what the VM refers to is missing, or does not fit the VM.
func (view View) unresolved() string {
	switch {
	case view.Missing != nil:
		return view.Missing.Error()
	case view.Failure != "":
		return view.Failure
	}
	return "the VM's instance type and preference cannot be read"
}

func changedFields(view View) []string {
	template, err := plain(*view.template())
	if err != nil {
		return nil // the message goes without
	}
	instance, err := plain(view.VMI.Spec)
	if err != nil {
		return nil
	}
	plugging, placing, moving := view.plugging(), view.placing(), view.claims()
	paths := slices.DeleteFunc(rollout.Beyond(template, instance), func(path string) bool {
		return ofPlugged(view.template(), path) || covers(plugging, view.VMI, path) ||
			placing.Covers(view.VMI, path) || refusesWithin(moving.Refused, path)
	})
	paths = append(paths, slices.Collect(maps.Keys(view.Volumes.Refused))...)
	slices.Sort(paths)
	return paths
}

// refusesWithin reports a field of a volume that is refused as a whole, which is named instead.
func refusesWithin(refused map[string]string, path string) bool {
	for of := range refused {
		if rollout.Within(path, of) {
			return true
		}
	}
	return false
}

// ofPlugged reports a field of a hotplugged volume, of its disk, or of an empty drive: what of these waits for the next
// start is known otherwise.
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

// covers reports a field of an interface or a network that the guest has, or gets while it runs.
func covers(p rollout.Plugging, instance *v1.VirtualMachineInstance, path string) bool {
	if _, known := rollout.Taken(instance); !known ||
		!rollout.Within(path, "domain.devices.interfaces") && !rollout.Within(path, "networks") {
		return false
	}
	for refused := range p.Refused {
		if rollout.Within(path, refused) {
			return false
		}
	}
	return true
}

func plain(spec v1.VirtualMachineInstanceSpec) (map[string]any, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}
