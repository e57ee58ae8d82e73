package clonecontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// apart are annotations that are the restore's business, whatever the filters say: the one that it needs, and those
// that it does not take over.
var apart = []string{
	snapshots.LastAnnotation, snapshots.FormerAnnotation, identity.KnownAs, identity.RenamedTo, identity.RenamedFrom,
	identity.RenamingFrom,
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patches returns the JSON patches, each an operation, that make of a snapshot's VM the clone: with an identity of its
// own, without what the filters leave out, and with what the clone asks for.
func Patches(source *v1beta1.VirtualMachine, spec *clonev1beta1.VirtualMachineCloneSpec) ([]string, error) {
	template := source.Spec.Template
	patches, err := addresses(source, spec.NewMacAddresses)
	if err != nil {
		return nil, err
	}
	replace := func(path, value string) { patches = append(patches, operation{"replace", path, value}) }
	const firmware = "/spec/template/spec/domain/firmware"
	serial := ""
	if spec.NewSMBiosSerial != nil {
		serial = *spec.NewSMBiosSerial
	}
	fresh := template.Spec.DeepCopy()
	clones.Fresh(fresh, nil, serial)
	switch {
	case template.Spec.Domain.Firmware != nil:
		replace(firmware+"/serial", fresh.Domain.Firmware.Serial)
	case fresh.Domain.Firmware != nil:
		patches = append(patches, operation{"add", firmware, fresh.Domain.Firmware})
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
		replace(firmware+"/uuid", string(fresh.Domain.Firmware.UUID))
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

// addresses returns the patches that give each interface the MAC address that is asked for, or none, so that it gets a
// new one. A VM that names no interface has the one that its guest is given.
func addresses(source *v1beta1.VirtualMachine, wanted map[string]string) ([]operation, error) {
	const devices = "/spec/template/spec/domain/devices/interfaces"
	guest := source.Spec.Template.Spec.DeepCopy()
	named := len(guest.Domain.Devices.Interfaces) > 0
	if !named && len(wanted) > 0 {
		surface.Attach(guest)
	}
	interfaces := guest.Domain.Devices.Interfaces
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !slices.ContainsFunc(interfaces, func(o v1.Interface) bool { return o.Name == name }) {
			return nil, fmt.Errorf("spec.newMacAddresses: VM %s has no interface %s", source.Name, name)
		}
	}
	clones.Fresh(guest, wanted, "")
	var patches []operation
	for i := range interfaces {
		if named {
			patches = append(patches,
				operation{"replace", fmt.Sprintf("%s/%d/macAddress", devices, i), interfaces[i].MacAddress})
		}
	}
	if !named && len(interfaces) > 0 {
		patches = append(patches, operation{"add", devices, interfaces},
			operation{"add", "/spec/template/spec/networks", guest.Networks})
	}
	return patches, nil
}

// leftOut returns the keys that filters exclude, in order; no filters exclude none. A filter is a key, or a prefix that
// ends in "*"; a leading "!" excludes what it matches, whatever the other filters say.
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

// escape returns a key as part of a JSON pointer.
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
