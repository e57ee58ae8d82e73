package rollout

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// templatePath is the spec that a VM's guests are made from.
const templatePath = "spec.template.spec"

// Guest is the guest of a VM as a change of the VM finds it.
type Guest struct {
	// Instance is the VM's VMI; nil, or one that has ended, is no guest.
	Instance *v1.VirtualMachineInstance
	// Staged says that the installation does not change guests that run (vmRolloutStrategy Stage).
	Staged bool
	// Connected reports whether the guest's pod is connected to the network of an interface; nil is to none.
	Connected func(*v1.Interface, *v1.Network) bool
	// Claims are those that exist of the claims that the VM's volumes name after the change, by name; nil is not known.
	Claims map[string]*corev1.PersistentVolumeClaim
}

// runs reports whether there is a guest.
func (g Guest) runs() bool { return life.Alive(g.Instance) }

// decision holds what virt-controller makes of a template for a running guest.
type decision struct {
	size      sizing.Change
	volumes   hotplug.Change
	moves     volumemigration.Decision
	nics      Plugging
	placement Placing
	// refused says by path, below the template's spec, why the guest has something only when it is started again.
	refused map[string]string
	// made says whether the guest's VMI was made from such a template; has is its spec as decoded JSON.
	made bool
	has  any
}

// decide asks the rules by which virt-controller changes the VMI. template has what the VM refers to written into
// it, if it refers to anything; strategy is the VM's updateVolumesStrategy.
func (g Guest) decide(
	template *v1.VirtualMachineInstanceSpec, refers bool, strategy v1.UpdateVolumesStrategy,
) decision {
	connected := g.Connected
	if connected == nil {
		connected = func(*v1.Interface, *v1.Network) bool { return false }
	}
	filled := template.DeepCopy()
	surface.DefaultDisks(filled)
	volumemigration.KeepPlugged(&strategy, filled, g.Instance)
	d := decision{
		size:      sizing.Of(&template.Domain, g.Instance, !g.Staged),
		volumes:   hotplug.Follow(filled, g.Instance, !g.Staged),
		nics:      Plug(template, g.Instance, connected, !g.Staged),
		placement: Place(template, g.Instance, !g.Staged),
		refused:   map[string]string{},
		has:       at(wrapped(&g.Instance.Spec), templatePath),
	}
	if made, err := MadeFrom(g.Instance, template, refers); err == nil { // else nothing is known of it
		d.made = made
	}
	maps.Copy(d.refused, d.size.Refused)
	maps.Copy(d.refused, d.volumes.Refused)
	follow := volumemigration.Follow
	if g.Staged && !volumemigration.Pending(g.Instance) {
		follow = volumemigration.Stay
	}
	d.moves = follow(&strategy, template, g.Instance)
	maps.Copy(d.refused, d.moves.AtStart(g.Instance))
	maps.Copy(d.refused, d.nics.Refused)
	maps.Copy(d.refused, d.placement.Refused)
	return d
}

// Edit is a VirtualMachine before and after a change, as decoded JSON.
type Edit struct {
	Before, After map[string]any
	// Was and Is are the templates' specs with instance type and preference written into them; nil where that is not
	// known, so that the rules of the fields alone answer.
	Was, Is *v1.VirtualMachineInstanceSpec
}

// Verdict says when a changed field takes effect.
type Verdict struct {
	Change
	Effect Effect
	// Note says more; it may be empty.
	Note string
}

// Follows reports whether a running guest gets a field only where vmRolloutStrategy is not Stage.
func (v Verdict) Follows() bool {
	return v.Effect == Hotplug || v.Effect == Migration ||
		v.Effect == Live && slices.Contains([]string{notePlace, noteLimit, noteFree, noteNoLimit}, v.Note)
}

// Verdicts returns for each field in which a VirtualMachine is changed when that takes effect for its guest. It asks
// what virt-controller asks, so that its answers come true.
func (g Guest) Verdicts(changes []Change, e Edit) []Verdict {
	var d *decision
	if g.runs() && e.Is != nil {
		spec, _ := e.After["spec"].(map[string]any)
		strategy, _ := spec["updateVolumesStrategy"].(string)
		made := g.decide(e.Is, spec["instancetype"] != nil || spec["preference"] != nil,
			v1.UpdateVolumesStrategy(strategy))
		d = &made
	}
	var out []Verdict
	for _, c := range changes {
		effect, note := EffectIn(c, e.Before, e.After, g.runs())
		effect, note = g.limited(c, effect, note)
		switch {
		case d == nil:
		case Within(c.Path, "spec.instancetype") || Within(c.Path, "spec.preference"):
			effect, note = g.referred(*d, e, effect, note)
		default:
			effect, note = g.known(*d, c, effect, note)
		}
		out = append(out, Verdict{c, effect, note})
	}
	return out
}

// known corrects the effect that a field of the template has by what is known of the guest.
func (g Guest) known(d decision, c Change, effect Effect, note string) (Effect, string) {
	path, ok := strings.CutPrefix(c.Path, templatePath+".")
	if !ok {
		return effect, note
	}
	if g.follows(path) {
		return effect, note
	}
	if why := g.refusal(d, path); why != "" {
		return Restart, why
	}
	switch cpu := g.Instance.Spec.Domain.CPU; {
	case OfPlacement(path):
		return g.placed(d, path, c)
	case sameCPU(path, c):
		return Live, noteHas
	case path == sizing.SocketsPath, path == "domain.cpu" && onlySize(c) && cpu != nil:
		if d.size.Sockets == nil {
			return Live, noteHas
		}
		return g.resized(false)
	case path == sizing.GuestPath, path == "domain.memory" && onlySize(c):
		if d.size.Guest == nil {
			return Live, noteHas
		}
		return g.resized(true)
	}
	if note == noteCopy || d.reverts(g.Instance, path) {
		return g.copied(d, path, c)
	}
	if effect, note = g.plugged(d, path, c, effect, note); effect == Restart && d.backAgain(path, c) {
		return Live, noteHas
	}
	return effect, note
}

// follows reports the state of an interface that the guest has, which it gets whatever else is changed of it.
func (g Guest) follows(path string) bool {
	name, ok := element(path, "domain.devices.interfaces")
	if !ok || path != "domain.devices.interfaces["+name+"].state" {
		return false
	}
	had, _ := attachmentsOfInstance(g.Instance).pair(name)
	return had != nil && had.State != v1.InterfaceStateAbsent
}

// placed returns when another placement that nothing blocks takes effect.
func (g Guest) placed(d decision, path string, c Change) (Effect, string) {
	switch {
	case !placementKnown(g.Instance) && !d.backAgain(path, c):
		return Restart, ""
	case !covered(path, d.placement.Changed):
		return Live, noteHas
	}
	return Live, notePlace
}

// plugged returns when newly added interfaces and networks take effect.
func (g Guest) plugged(d decision, path string, c Change, effect Effect, note string) (Effect, string) {
	name, nic := element(path, "domain.devices.interfaces")
	if !nic {
		var network bool
		if name, network = element(path, "networks"); !network {
			return effect, note
		}
	}
	moved := strings.HasSuffix(path, networkName)
	if _, known := Taken(g.Instance); !known {
		if moved {
			return Restart, ""
		}
		return effect, note
	}
	if strings.HasSuffix(path, "].state") {
		return effect, note
	}
	come, n := d.nics.Spec.pair(name)
	had, hadNetwork := attachmentsOfInstance(g.Instance).pair(name)
	switch {
	case come != nil && come.State != v1.InterfaceStateAbsent && (had == nil || had.State == v1.InterfaceStateAbsent):
		if g.Connected != nil && g.Connected(come, n) {
			return Hotplug, "plugs the interface in"
		}
		return Migration, "plugged in when the guest has migrated"
	case moved && come != nil && !equality.Semantic.DeepEqual(n, hadNetwork) &&
		(g.Connected == nil || !g.Connected(come, n)):
		return Migration, "connected to it when the guest has migrated"
	case c.After == nil && come == nil:
		return Live, "the guest has unplugged it"
	}
	if after, ok := c.After.(map[string]any); ok && nic && had != nil && c.Before == nil {
		// It is spelled out now, perhaps with another state.
		if state, _ := after["state"].(string); (state == "down") != (had.State == v1.InterfaceStateLinkDown) {
			return cable(Change{After: state})
		}
	}
	return Live, noteHas
}

func attachmentsOfInstance(vmi *v1.VirtualMachineInstance) Attachments {
	return Attachments{Interfaces: vmi.Spec.Domain.Devices.Interfaces, Networks: vmi.Spec.Networks}
}

// refusal returns why the running guest does not have a field of the template, or "" when it does.
func (g Guest) refusal(d decision, path string) string {
	for refused, why := range d.refused {
		if Within(path, refused) || Within(refused, path) {
			return why
		}
	}
	if name, ok := element(path, "networks"); ok {
		return d.refused["domain.devices.interfaces["+name+"]"]
	}
	if name, ok := element(path, "domain.devices.disks"); ok {
		return d.refused["volumes["+name+"]"]
	}
	name, ok := element(path, "volumes")
	if !ok {
		return ""
	}
	had := hotplug.Volume(&g.Instance.Spec, name)
	will := hotplug.Volume(&v1.VirtualMachineInstanceSpec{Volumes: d.volumes.Volumes}, name)
	if !equality.Semantic.DeepEqual(had, will) {
		return "" // it comes or goes, whatever becomes of its drive
	}
	return d.refused["domain.devices.disks["+name+"]"]
}

// noteHas is the note on what is written otherwise than before and means the same.
const noteHas = "the guest has it"

// sameCPU reports a number of cores or threads that is written now and was the default before, or the other way round.
func sameCPU(path string, c Change) bool {
	if path != "domain.cpu.cores" && path != "domain.cpu.threads" {
		return false
	}
	return atMostOne(c.Before) && atMostOne(c.After)
}

func atMostOne(v any) bool {
	switch n := v.(type) {
	case nil:
		return true
	case float64:
		return n <= 1
	case int64:
		return n <= 1
	}
	return false
}

// onlySize reports a CPU or memory that comes or goes with nothing but the size in it.
func onlySize(c Change) bool {
	for _, value := range []any{c.Before, c.After} {
		fields, _ := value.(map[string]any)
		for key, value := range fields {
			if key != "sockets" && key != "guest" && (key != "cores" && key != "threads" || !atMostOne(value)) {
				return false
			}
		}
	}
	return true
}

// resized returns when a guest gets the size that its VMI is given.
func (g Guest) resized(memory bool) (Effect, string) {
	fixed := sizing.PodObstacle(&g.Instance.Spec.Domain, memory)
	if fixed == "" {
		if migrations.Refusal(g.Instance) != "" {
			return Hotplug, "if the node has no room, at the next restart: the guest cannot migrate"
		}
		return Hotplug, "if the node has no room, after a migration"
	}
	if why := migrations.Refusal(g.Instance); why != "" {
		return Restart, fixed + ", and: " + why
	}
	return Migration, fixed
}

// referred returns when another instance type or preference takes effect: with the last of what it changes.
func (g Guest) referred(d decision, e Edit, effect Effect, note string) (Effect, string) {
	if e.Was == nil || e.Is == nil {
		return effect, note
	}
	before, after := wrapped(e.Was), wrapped(e.Is)
	effect, note = Live, "makes the same guest"
	for _, c := range Compare(before, after) {
		one, why := EffectIn(c, before, after, true)
		one, why = g.known(d, c, one, why)
		if rank[one] > rank[effect] {
			effect, note = one, strings.TrimPrefix(c.Path, templatePath+".")+": "+why
			note = strings.TrimSuffix(note, ": ")
		}
	}
	return effect, note
}

// rank orders effects by how long they take.
var rank = map[Effect]int{Live: 0, Hotplug: 1, Migration: 2, Restart: 3}

// wrapped returns a template's spec as that of a VM, decoded JSON.
func wrapped(spec *v1.VirtualMachineInstanceSpec) map[string]any {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}})
	if err != nil {
		return nil
	}
	var out map[string]any
	if json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}
