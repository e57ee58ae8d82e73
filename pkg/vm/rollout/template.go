package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// TemplateHashAnnotation is on a VM's VMI: what the template was when it was made, so that a later
// change can be distinguished from one that concerns the VM only, without keeping the old template.
const TemplateHashAnnotation = reserved.TemplateHash

// Counted selects what TemplateHash covers beside what never changes while the guest runs. VMIs of this controller have
// hashes without these fields; those that an older one made may have them with.
type Counted struct {
	// Attachments are interfaces and networks.
	Attachments bool
	// Placement is node selector, affinity and tolerations.
	Placement bool
}

// TemplateHash does not count what is plugged in while the guest runs, nor the links of its interfaces and its size,
// which may change then. What an instance type requests goes with the size, where the VM refers to one.
func TemplateHash(spec *v1.VirtualMachineInstanceSpec, refers bool, counted Counted) (string, error) {
	fixed, prefix := sizing.Fixed(Linkless(hotplug.Without(spec))), ""
	if !counted.Attachments {
		fixed.Domain.Devices.Interfaces, fixed.Networks = nil, nil
	}
	if !counted.Placement {
		Placement{}.Apply(fixed)
		prefix = placed
	}
	if refers {
		delete(fixed.Domain.Resources.Requests, corev1.ResourceMemory)
	}
	data, err := json.Marshal(fixed)
	if err != nil {
		return "", fmt.Errorf("encode spec.template.spec: %w", err)
	}
	sum := sha256.Sum256(data)
	return prefix + hex.EncodeToString(sum[:8]), nil
}

// MadeFrom reports whether a VMI was made from a template like this one, apart from what may change while the guest
// runs and from how its size is written: a field of the size that is given now and was left out before, or the other
// way round, makes no other guest. refers says whether the VM has an instance type or a preference.
func MadeFrom(instance *v1.VirtualMachineInstance, spec *v1.VirtualMachineInstanceSpec, refers bool) (bool, error) {
	_, apart := Taken(instance)
	for _, spelling := range sizing.Spellings(volumemigration.AsMade(spec, instance)) {
		got, err := TemplateHash(spelling, refers, Counted{Attachments: !apart, Placement: !placementKnown(instance)})
		if err != nil || got == instance.Annotations[TemplateHashAnnotation] {
			return err == nil, err
		}
	}
	return false, nil
}

// backAgain reports a change that takes back one for which the guest had to be started again, which it was not: of the
// whole template, or of this field.
func (d decision) backAgain(path string, c Change) bool {
	if d.made {
		return true
	}
	has := at(d.has, path)
	return c.Before != nil && !reflect.DeepEqual(c.Before, has) && reflect.DeepEqual(c.After, has)
}

// at returns the value at a path of decoded JSON, as Compare writes it; nil where there is none.
func at(value any, path string) any {
	for path != "" {
		var key string
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, path, _ = strings.Cut(rest, "]")
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			key, path = path[:end], path[end:]
		}
		path = strings.TrimPrefix(path, ".")
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			elements, _ := named(v) // those without names are not looked up
			value = elements[key]
		default:
			return nil
		}
	}
	return value
}
