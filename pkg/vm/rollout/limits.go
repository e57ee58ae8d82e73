package rollout

import (
	"maps"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/qos"
)

const (
	metadataPath    = "spec.template.metadata"
	annotationsPath = metadataPath + ".annotations"
)

// The notes on rate limits that change.
const (
	noteLimit   = "limits the guest as it runs"
	noteFree    = "takes the limits away as the guest runs"
	noteNoLimit = "with the disk or interface, which the guest does not have yet"
)

// Limiting holds what the rate limits in a VM's template mean for its running guest.
type Limiting struct {
	// Annotations are the VMI's from now on, and Changed says that these are not those that it has.
	Annotations map[string]string
	Changed     bool
	// Refused says by path why the guest has a limit only when it is started again.
	Refused map[string]string
}

// Limit compares the present template with the VMI. live says whether the installation changes running guests.
func Limit(
	template *v1.VirtualMachineInstanceTemplateSpec, instance *v1.VirtualMachineInstance, live bool,
) Limiting {
	after, changed := qos.Follow(template.ObjectMeta.Annotations, &template.Spec, instance)
	out := Limiting{Annotations: after, Changed: live && len(changed) > 0, Refused: map[string]string{}}
	if !live {
		out.Annotations = instance.Annotations
		for _, key := range changed {
			out.Refused[annotationsPath+"["+key+"]"] = noteStaged
		}
	}
	return out
}

// limitKeys returns the annotations with rate limits of a template that a change is about, with their new texts, ""
// where there is none; ok is false for a change that is about anything else, too.
func limitKeys(c Change) (limits map[string]string, ok bool) {
	if key, is := element(c.Path, annotationsPath); is {
		text, _ := c.After.(string)
		return map[string]string{key: text}, qos.Is(key)
	}
	if c.Path != metadataPath && c.Path != annotationsPath {
		return nil, false
	}
	before, _ := c.Before.(map[string]any)
	after, _ := c.After.(map[string]any)
	limits = map[string]string{}
	for _, part := range Compare(before, after) {
		if !strings.HasPrefix(part.Path, "[") {
			part.Path = "." + part.Path
		}
		part.Path = c.Path + part.Path
		more, only := limitKeys(part)
		if !only {
			return nil, false
		}
		maps.Copy(limits, more)
	}
	return limits, true
}

// limited corrects the effect that a change of rate limits has by what is known of the guest.
func (g Guest) limited(c Change, effect Effect, note string) (Effect, string) {
	limits, ok := limitKeys(c)
	if !ok || !g.runs() {
		return effect, note
	}
	has, there := true, true
	for key, text := range limits {
		has = has && g.Instance.Annotations[key] == text
		there = there && qos.Device(key, &g.Instance.Spec)
	}
	switch {
	case has:
		return Live, noteHas
	case g.Staged:
		return Restart, noteStaged
	case !there:
		return Live, noteNoLimit
	}
	return effect, note
}
