package rollout

import "strings"

// Effect says when a changed field takes effect.
type Effect string

// The effects.
const (
	// Live means at once.
	Live Effect = "live"
	// Hotplug means at once, by plugging a device into the running guest or out of it.
	Hotplug Effect = "hotplug"
	// Migration means once the running guest has moved to another node or pod.
	Migration Effect = "migration"
	// Restart means once the running guest has been stopped and started again.
	Restart Effect = "restart"
	// Start means when the guest, which does not run, is started.
	Start Effect = "start"
)

// rule is the effect that a field has on a guest that runs.
type rule struct {
	// path is the field with all below it.
	path   string
	effect Effect
	note   string
}

// The fields by which a guest that runs can grow.
const (
	socketsPath = "spec.template.spec.domain.cpu.sockets"
	memoryPath  = "spec.template.spec.domain.memory.guest"
)

// rules are the rules for VirtualMachine; the longest path counts. virt-controller acts by them: it makes the VMI from
// the template once, and a later change of the template applies to the next VMI, but for what is listed here.
var rules = []rule{
	{"metadata", Live, ""},
	{"spec", Live, ""},
	{"spec.instancetype", Restart, "what is only more sockets and memory, within the guest's bounds, at once"},
	{"spec.preference", Restart, ""},
	{"spec.template", Restart, ""},
	{socketsPath, Hotplug, "up to maxSockets, unless vmRolloutStrategy is Stage"},
	{memoryPath, Hotplug, "between what the guest was started with and maxGuest, unless vmRolloutStrategy is Stage"},
	{templatePath + "." + selectorPath, Live, notePlace + ", unless vmRolloutStrategy is Stage"},
	{templatePath + "." + affinityPath, Live, notePlace + ", unless vmRolloutStrategy is Stage"},
	{templatePath + "." + tolerationsPath, Live, notePlace + ", unless vmRolloutStrategy is Stage"},
	{"spec.template.metadata", Restart, "the instance and its pod have it from their next start on"},
}

// EffectOf returns when a change of a VirtualMachine takes effect, and a note on it, which may be empty. running says
// whether there is a guest. EffectIn knows more about volumes and disks.
func EffectOf(c Change, running bool) (Effect, string) {
	best := rule{effect: Live}
	for _, r := range rules {
		if Within(c.Path, r.path) && len(r.path) > len(best.path) {
			best = r
		}
	}
	if !running && (best.effect != Live || Within(c.Path, "spec.template")) {
		return Start, ""
	}
	if limits, ok := limitKeys(c); ok {
		for _, text := range limits {
			if text != "" {
				return Live, noteLimit
			}
		}
		return Live, noteFree
	}
	if c.Path == "spec.runStrategy" || c.Path == "spec.running" {
		return Live, power(c.After, running)
	}
	if Within(c.Path, interfacesPath) && strings.HasSuffix(c.Path, "].state") {
		return cable(c)
	}
	if effect, note, ok := attached(c); ok {
		return effect, note
	}
	if effect, note, ok := toNetwork(c); ok {
		return effect, note
	}
	if best.effect == Hotplug && !grows(c) {
		return Restart, "a guest that runs keeps its sockets"
	}
	return best.effect, best.note
}

// interfacesPath are the interfaces of a VM's guests.
const interfacesPath = "spec.template.spec.domain.devices.interfaces"

// networksPath are the networks of a VM's guests, and networkName ends the path of what one of Multus' names.
const (
	networksPath = "spec.template.spec.networks"
	networkName  = "].multus.networkName"
)

// attached returns when an interface or network that is added or removed takes effect; ok is false for other changes.
func attached(c Change) (effect Effect, note string, ok bool) {
	if !strings.HasPrefix(c.Path, interfacesPath+"[") && !strings.HasPrefix(c.Path, networksPath+"[") ||
		!strings.HasSuffix(c.Path, "]") {
		return "", "", false
	}
	const plugged = "plugged in when the guest has migrated, unless vmRolloutStrategy is Stage"
	if before, ok := c.Before.(map[string]any); ok && c.After == nil && before["state"] == "absent" {
		return Live, "the guest has unplugged it", true
	}
	after, ok := c.After.(map[string]any)
	if !ok || c.Before != nil {
		return "", "", false
	}
	if multus, ok := after["multus"].(map[string]any); ok && multus["default"] != true {
		return Migration, plugged, true
	}
	_, bridge := after["bridge"]
	if strings.HasPrefix(c.Path, interfacesPath) && bridge {
		return Migration, plugged, true
	}
	return "", "", false
}

// toNetwork returns when another NetworkAttachmentDefinition of a network takes effect; ok is false for other changes.
func toNetwork(c Change) (effect Effect, note string, ok bool) {
	if !strings.HasPrefix(c.Path, networksPath+"[") || !strings.HasSuffix(c.Path, networkName) || c.Before == nil ||
		c.After == nil {
		return "", "", false
	}
	return Migration, "connected to it when the guest has migrated, if its interface has bridge: {}, unless " +
		"vmRolloutStrategy is Stage", true
}

// cable returns when an interface's new link state takes effect.
func cable(c Change) (Effect, string) {
	switch {
	case c.Before == "absent":
		return Hotplug, "plugs the interface in, for which the guest may have to migrate"
	case c.After == "absent":
		return Hotplug, "unplugs the interface"
	case c.After == "down":
		return Live, "pulls its cable"
	}
	return Live, "plugs its cable in"
}

// hotpluggable reports a volume that may come to a guest that runs, and leave it.
func hotpluggable(volume map[string]any) bool {
	for _, source := range []string{"persistentVolumeClaim", "dataVolume"} {
		if fields, ok := volume[source].(map[string]any); ok && fields["hotpluggable"] == true {
			return true
		}
	}
	return false
}

// grows reports a size that was given and is given as more, or for memory as anything else: what was plugged in may go.
func grows(c Change) bool {
	switch before := c.Before.(type) {
	case float64:
		after, ok := c.After.(float64)
		return ok && after > before
	case int64:
		after, ok := c.After.(int64)
		return ok && after > before
	case string:
		_, ok := c.After.(string)
		return ok
	}
	return false
}

// power returns what a new run strategy does to the guest.
func power(after any, running bool) string {
	switch {
	case running && (after == "Halted" || after == false):
		return "stops the guest"
	case !running && (after == "Always" || after == true || after == "RerunOnFailure" || after == "Once"):
		return "starts the guest"
	}
	return ""
}

// Within reports whether a field's path is another or below it, as in "spec.a[b].c" below "spec.a".
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
