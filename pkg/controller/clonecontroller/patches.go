package clonecontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// apart are annotations that are the restore's business, whatever the filters say: the one that it needs, and those
// that it does not take over.
var apart = []string{
	snapshots.LastAnnotation, snapshots.FormerAnnotation, identity.KnownAs, identity.RenamedTo, identity.RenamedFrom,
	identity.RenamingFrom,
}

// operation is one of a JSON patch.
type operation struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value,omitempty"`
}

// Patches are the JSON patches, each an operation, that make of a snapshot's VM the clone: with an identity of its own,
// without what the filters leave out, and with what the clone asks for.
func Patches(source *v1beta1.VirtualMachine, spec *clonev1beta1.VirtualMachineCloneSpec) ([]string, error) {
	var patches []operation
	replace := func(path, value string) { patches = append(patches, operation{"replace", path, &value}) }
	template := source.Spec.Template
	for i := range template.Spec.Domain.Devices.Interfaces {
		nic := &template.Spec.Domain.Devices.Interfaces[i]
		replace(fmt.Sprintf("/spec/template/spec/domain/devices/interfaces/%d/macAddress", i),
			spec.NewMacAddresses[nic.Name])
	}
	const firmware = "/spec/template/spec/domain/firmware"
	serial := ""
	if spec.NewSMBiosSerial != nil {
		serial = *spec.NewSMBiosSerial
	}
	if template.Spec.Domain.Firmware != nil {
		replace(firmware+"/serial", serial)
	}
	left := func(of map[string]string, filters []string, path string) {
		for _, key := range leftOut(of, filters) {
			patches = append(patches, operation{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	left(source.Labels, spec.LabelFilters, "/metadata/labels")
	left(source.Annotations, spec.AnnotationFilters, "/metadata/annotations")
	left(template.ObjectMeta.Labels, spec.Template.LabelFilters, "/spec/template/metadata/labels")
	left(template.ObjectMeta.Annotations, spec.Template.AnnotationFilters, "/spec/template/metadata/annotations")
	if template.Spec.Domain.Firmware != nil {
		replace(firmware+"/uuid", "")
	}
	var out []string
	for _, patch := range patches {
		text, err := json.Marshal(patch)
		if err != nil {
			return nil, fmt.Errorf("encode patch of %s: %w", patch.Path, err)
		}
		out = append(out, string(text))
	}
	return append(out, spec.Patches...), nil
}

// leftOut are the keys that filters do not let through, in order; no filters let all through. A filter is a beginning
// that "*" ends, or a key; "!" makes of it one that is left out, whatever the others say.
func leftOut(of map[string]string, filters []string) []string {
	if filters == nil {
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		in := false
		for _, filter := range filters {
			in = in || !strings.HasPrefix(filter, "!") && matches(filter, key)
		}
		for _, filter := range filters {
			if not, is := strings.CutPrefix(filter, "!"); is && matches(not, key) {
				in = false
			}
		}
		if !in && !slices.Contains(apart, key) {
			out = append(out, key)
		}
	}
	return out
}

// matches reports whether a filter has a key. KubeVirt takes filters for regular expressions, which match anywhere in a
// key; "*" at the end, as it documents them, means the same here and there.
func matches(filter, key string) bool { return strings.Contains(key, strings.TrimSuffix(filter, "*")) }

// escape is a key as part of a JSON pointer.
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
