package clonecontroller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// apart are annotations that are the restore's business, whatever the filters say: the one that it needs, and those
// that it does not take over. So are those of package reserved.
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
// own but for the parts that are kept (clones.Parts), without what the filters leave out, and with what the clone asks
// for.
func Patches(
	source *v1beta1.VirtualMachine, spec *clonev1beta1.VirtualMachineCloneSpec, kept []string,
) ([]string, error) {
	template := source.Spec.Template
	patches, err := addresses(source, spec.NewMacAddresses, slices.Contains(kept, clones.KeepMAC))
	if err != nil {
		return nil, err
	}
	left := func(of map[string]string, filters []string, path string) {
		for _, key := range leftOut(of, filters) {
			patches = append(patches, operation{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	left(source.Labels, spec.LabelFilters, "/metadata/labels")
	left(source.Annotations, spec.AnnotationFilters, "/metadata/annotations")
	left(template.ObjectMeta.Labels, spec.Template.LabelFilters, "/spec/template/metadata/labels")
	const annotations = "/spec/template/metadata/annotations"
	left(template.ObjectMeta.Annotations, spec.Template.AnnotationFilters, annotations)
	if _, wished := template.ObjectMeta.Annotations[ipaddress.Wish]; wished && !slices.Contains(kept, clones.KeepMAC) &&
		!slices.Contains(leftOut(template.ObjectMeta.Annotations, spec.Template.AnnotationFilters), ipaddress.Wish) {
		patches = append(patches, operation{Op: "remove", Path: annotations + "/" + escape(ipaddress.Wish)})
	}
	patches = append(patches, firmware(source, spec.NewSMBiosSerial, kept)...)
	patches = append(patches, guestNames(source, kept)...)
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

// firmware returns the patches of the firmware's UUID and serial number. A VM without a UUID has that of its name.
func firmware(source *v1beta1.VirtualMachine, serial *string, kept []string) []operation {
	const path = "/spec/template/spec/domain/firmware"
	had := source.Spec.Template.Spec.Domain.Firmware
	fresh := source.Spec.Template.Spec.DeepCopy()
	wanted := ""
	if serial != nil {
		wanted = *serial
	}
	clones.Fresh(fresh, nil, wanted)
	has := fresh.Domain.Firmware
	if slices.Contains(kept, clones.KeepUUID) {
		if has == nil {
			has = &v1.Firmware{}
		}
		has.UUID = identity.UUID(source.Name)
		if had != nil && had.UUID != "" {
			has.UUID = had.UUID
		}
	}
	if slices.Contains(kept, clones.KeepSerial) && had != nil {
		has.Serial = had.Serial
	}
	switch {
	case had != nil:
		return []operation{{"replace", path + "/serial", has.Serial}, {"replace", path + "/uuid", string(has.UUID)}}
	case has != nil:
		return []operation{{"add", path, has}}
	}
	return nil
}

// guestNames returns the patches of the host name, and of the name by which the guest knows itself, which the restore
// has taken away. One that is emptied stays in the document: patches of the clone's may replace it.
func guestNames(source *v1beta1.VirtualMachine, kept []string) (patches []operation) {
	const host, annotations = "/spec/template/spec/hostname", "/spec/template/metadata/annotations"
	template := source.Spec.Template
	switch keep := slices.Contains(kept, clones.KeepHostname); {
	case keep && template.Spec.Hostname == "":
		patches = append(patches, operation{"add", host, names.Host("", source.Name)})
	case !keep && template.Spec.Hostname != "":
		patches = append(patches, operation{"replace", host, ""})
	}
	if !slices.Contains(kept, clones.KeepInstanceID) {
		return patches
	}
	known := identity.Name(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: source.Name, Annotations: template.ObjectMeta.Annotations,
	}})
	others := reserved.Without(template.ObjectMeta.Annotations) // as the restore has them
	if delete(others, identity.KnownAs); len(others) == 0 {
		return append(patches, operation{"add", annotations, map[string]string{identity.KnownAs: known}})
	}
	return append(patches, operation{"add", annotations + "/" + escape(identity.KnownAs), known})
}

// addresses returns the patches that give each interface the MAC address that is asked for, or that it has when they
// are kept, or none, so that it gets a new one. A VM that names no interface has the one that its guest is given.
func addresses(source *v1beta1.VirtualMachine, wanted map[string]string, keep bool) ([]operation, error) {
	const devices = "/spec/template/spec/domain/devices/interfaces"
	guest := source.Spec.Template.Spec.DeepCopy()
	named, recorded := len(guest.Domain.Devices.Interfaces) > 0, map[string]string{}
	if keep {
		recorded = macaddress.Recorded(source)
	}
	if !named && len(wanted)+len(recorded) > 0 {
		surface.Attach(guest)
	}
	interfaces := guest.Domain.Devices.Interfaces
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !slices.ContainsFunc(interfaces, func(o v1.Interface) bool { return o.Name == name }) {
			return nil, fmt.Errorf("spec.newMacAddresses: VM %s has no interface %s", source.Name, name)
		}
	}
	given := maps.Clone(recorded)
	if given == nil {
		given = map[string]string{}
	}
	for i := range interfaces {
		if interfaces[i].MacAddress != "" {
			delete(given, interfaces[i].Name) // counts, and stays where it is
		}
	}
	maps.Copy(given, wanted)
	clones.Fresh(guest, given, "")
	var patches []operation
	for i := range interfaces {
		if _, asked := given[interfaces[i].Name]; named && (asked || !keep) {
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
		if !in && !slices.Contains(apart, key) && !reserved.Is(key) {
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
