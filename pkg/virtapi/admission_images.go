package virtapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// A clone whose source is a claim copies an image of another namespace to a claim; KubeVirt has no such clones.

// validateImageEnds checks what a clone of an image has, and refuses what only a clone of a VM can have.
func validateImageEnds(spec *clonev1beta1.VirtualMachineCloneSpec, crosses bool) (errs field.ErrorList) {
	source, target := spec.Source, spec.Target
	at := specField.Child("source")
	if !crosses {
		errs = append(errs, field.Invalid(at.Child("kind"), source.Kind, "a claim is cloned from another namespace, "+
			"which the annotation "+clones.NamespaceAnnotation+" names; within its own namespace give the new claim "+
			"a dataSource"))
	}
	if source.APIGroup != nil && *source.APIGroup != "" {
		errs = append(errs, field.Invalid(at.Child("apiGroup"), *source.APIGroup, "a claim has none; leave it out"))
	}
	if source.Name == "" {
		errs = append(errs, field.Required(at.Child("name"),
			"is missing: write the name of the claim that has the image"))
	}
	if target == nil {
		return append(errs, field.Required(targetField, "is missing: write the kind PersistentVolumeClaim and "+
			"the name of the claim that is made"))
	}
	if target.Kind != clones.KindClaim {
		errs = append(errs, field.NotSupported(targetField.Child("kind"), target.Kind, []string{clones.KindClaim}))
	}
	if target.APIGroup != nil && *target.APIGroup != "" {
		errs = append(errs, field.Invalid(targetField.Child("apiGroup"), *target.APIGroup,
			"a claim has none; leave it out"))
	}
	errs = append(errs, validateName(target.Name, targetField.Child("name"))...)
	for _, of := range []struct {
		name  string
		given bool
	}{
		{"patches", len(spec.Patches) > 0},
		{"newMacAddresses", len(spec.NewMacAddresses) > 0},
		{"newSMBiosSerial", spec.NewSMBiosSerial != nil},
		{"volumeNamePolicy", spec.VolumeNamePolicy != nil},
		{"labelFilters", len(spec.LabelFilters) > 0},
		{"annotationFilters", len(spec.AnnotationFilters) > 0},
		{"template", len(spec.Template.LabelFilters)+len(spec.Template.AnnotationFilters) > 0},
	} {
		if of.given {
			errs = append(errs, field.Forbidden(specField.Child(of.name), "is for a clone of a VM, not of a claim"))
		}
	}
	return errs
}

// validateForeign refuses the annotation of a new clone that is for a clone of another kind: nothing would come of it.
func validateForeign(clone *clonev1beta1.VirtualMachineClone) field.ErrorList {
	key, why := clones.SizeAnnotation, "is for a clone of an image, not of a VM, whose disks keep their sizes; "+
		"leave it out, and resize the copy's disks"
	if clones.OfImage(clone) {
		key, why = clones.KeepAnnotation, "is for a clone of a VM, not of a claim; leave it out"
	}
	if _, given := clone.Annotations[key]; given {
		return field.ErrorList{field.Forbidden(crossingField(key), why)}
	}
	return nil
}

// validateImage refuses a claim that has no image, and a copy that has no room for the image.
func validateImage(clone *clonev1beta1.VirtualMachineClone, claim *corev1.PersistentVolumeClaim) field.ErrorList {
	if trouble := clones.ImageTrouble(claim); trouble != "" {
		return field.ErrorList{field.Invalid(specField.Child("source", "name"), clone.Spec.Source.Name, trouble)}
	}
	text := clone.Annotations[clones.SizeAnnotation]
	if _, err := clones.ImageClaim(clone, claim); err != nil {
		return field.ErrorList{field.Invalid(crossingField(clones.SizeAnnotation), text, err.Error())}
	}
	return nil
}
