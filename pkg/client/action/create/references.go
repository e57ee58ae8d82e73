package create

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Inference is whether, and from which volume, an instance type or preference is taken.
type Inference struct {
	// Off never infers.
	Off bool
	// Explicit makes it an error when there is nothing to infer from; else that is ignored, by the server too.
	Explicit bool
	// From is the volume; the one that is booted from when it is empty.
	From string
}

// field returns the option that asks for the inference: the one that names a volume, where one is named.
func (i Inference) field(whether string) string {
	if i.From != "" {
		return whether + "-from"
	}
	return whether
}

// reference reads KIND/NAME or NAME; kinds are the singular names that KIND may be.
func reference(field, text string, kinds ...string) (kind, name string, err error) {
	kind, name, _ = cutLast(text)
	kind = strings.ToLower(kind)
	if kind != "" && !slices.Contains(kinds, kind) || kind == "" && strings.Contains(text, "/") {
		return "", "", invalid(field, "%q is not one of %s", kind, strings.Join(kinds, ", "))
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", "", invalid(field, "%q is no name: %s", name, errs[0])
	}
	return kind, name, nil
}

// refer names the instance type and the preference. The memory is then the instance type's.
func refer(vm *v1.VirtualMachine, o Options) error {
	if o.Instancetype != "" {
		kind, name,
			err := reference("instancetype", o.Instancetype, api.SingularResourceName, api.ClusterSingularResourceName)
		if err != nil {
			return err
		}
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Kind: kind, Name: name}
		vm.Spec.Template.Spec.Domain.Memory = nil
	}
	if o.Preference != "" {
		kind, name, err := reference("preference", o.Preference, api.SingularPreferenceResourceName,
			api.ClusterSingularPreferenceResourceName)
		if err != nil {
			return err
		}
		vm.Spec.Preference = &v1.PreferenceMatcher{Kind: kind, Name: name}
	}
	return nil
}

// infer sets in vm from which volume's labels the server infers the instance type and the preference.
func infer(vm *v1.VirtualMachine, o Options) error {
	policy := func(i Inference) *v1.InferFromVolumeFailurePolicy {
		if i.Explicit {
			return nil
		}
		ignore := v1.IgnoreInferFromVolumeFailure
		return &ignore
	}
	if i := o.InferInstancetype; !i.Off && o.Instancetype == "" && !o.MemoryGiven && o.CPU == 0 {
		switch volume, err := inferable(vm, o, i); {
		case err == nil:
			vm.Spec.Instancetype = &v1.InstancetypeMatcher{
				InferFromVolume:              volume,
				InferFromVolumeFailurePolicy: policy(i),
			}
			if i.Explicit {
				vm.Spec.Template.Spec.Domain.Memory = nil
			} // else it stands in where nothing is inferred
		case i.Explicit:
			return invalid(i.field("infer-instancetype"), "%s", err)
		}
	}
	if i := o.InferPreference; !i.Off && o.Preference == "" {
		switch volume, err := inferable(vm, o, i); {
		case err == nil:
			vm.Spec.Preference = &v1.PreferenceMatcher{InferFromVolume: volume, InferFromVolumeFailurePolicy: policy(i)}
		case i.Explicit:
			return invalid(i.field("infer-preference"), "%s", err)
		}
	}
	return nil
}

// inferable returns the volume to infer from, or an error that says why there is none.
func inferable(vm *v1.VirtualMachine, o Options, i Inference) (string, error) {
	spec := &vm.Spec.Template.Spec
	name := i.From
	if name == "" {
		if len(spec.Volumes) == 0 {
			return "", fmt.Errorf("there is no volume to infer from")
		}
		name = spec.Volumes[0].Name
		first := uint(0)
		for _, disk := range spec.Domain.Devices.Disks {
			if order := disk.BootOrder; order != nil && (first == 0 || *order < first) {
				first, name = *order, disk.Name
			}
		}
	}
	volume := hotplug.Volume(spec, name)
	switch {
	case volume == nil:
		return "", fmt.Errorf("there is no volume named %q", name)
	case volume.PersistentVolumeClaim != nil:
		plain := slices.ContainsFunc(o.Volumes, func(v Volume) bool {
			return v.Plain && v.Kind == Claim && v.Source == volume.PersistentVolumeClaim.ClaimName
		})
		if plain && !i.Explicit {
			return "", fmt.Errorf("volume %q is not asked", name)
		}
		return name, nil
	case volume.DataVolume != nil:
		for _, template := range vm.Spec.DataVolumeTemplates {
			source, ref := template.Spec.Source, template.Spec.SourceRef
			if template.Name == volume.DataVolume.Name && ref == nil &&
				(source == nil || source.PVC == nil && source.Registry == nil && source.Snapshot == nil) {
				return "", fmt.Errorf("volume %q is filled from what has no labels; only a pvc, registry, snapshot "+
					"or ds has", name)
			}
		}
		return name, nil
	}
	return "", fmt.Errorf("volume %q is neither a claim nor imported, and so has no labels", name)
}
