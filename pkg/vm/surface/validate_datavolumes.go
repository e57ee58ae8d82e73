package surface

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// validateDataVolumeTemplates checks of a VM's DataVolumes what it can without CDI, which judges the rest when
// they are made. volumes are the template's.
func validateDataVolumeTemplates(vm *v1.VirtualMachine, volumes []v1.Volume, at *field.Path) field.ErrorList {
	errs := tooMany(len(vm.Spec.DataVolumeTemplates), at)
	seen := map[string]bool{}
	for i := range vm.Spec.DataVolumeTemplates {
		template := &vm.Spec.DataVolumeTemplates[i]
		here, meta := at.Index(i), at.Index(i).Child("metadata")
		if template.Name == "" {
			errs = append(errs, field.Required(meta.Child("name"), "is not set; it is the name of the DataVolume and "+
				"of its claim, by which template.spec.volumes refers to it"))
		} else {
			errs = append(errs, validateObjectName(template.Name, meta.Child("name"))...)
			if seen[template.Name] {
				errs = append(errs, duplicate(meta.Child("name"), template.Name, "DataVolume"))
			}
			seen[template.Name] = true
			used := slices.ContainsFunc(volumes, func(v v1.Volume) bool { return claims.Name(&v) == template.Name })
			if !used {
				errs = append(errs, field.Invalid(meta.Child("name"), template.Name,
					fmt.Sprintf("no volume uses DataVolume %q; add {name: …, dataVolume: {name: %s}} to "+
						"template.spec.volumes, or remove the template", template.Name, template.Name)))
			}
		}
		if namespace := template.Namespace; namespace != "" && vm.Namespace != "" && namespace != vm.Namespace {
			errs = append(errs, field.Invalid(meta.Child("namespace"), namespace,
				fmt.Sprintf("the DataVolume is made in the VM's namespace, %q; remove this", vm.Namespace)))
		}
		errs = append(errs, validateDataVolumeSpec(&template.Spec, here.Child("spec"))...)
	}
	return errs
}

func validateDataVolumeSpec(spec *cdiv1.DataVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		errs = append(errs, field.Required(at.Child("storage"),
			"is not set; it says how large the volume is, as resources.requests.storage (or use pvc)"))
	case spec.PVC != nil && spec.Storage != nil:
		errs = append(errs, field.Forbidden(at.Child("pvc"), "cannot be set together with storage; keep one"))
	}
	populated := spec.PVC != nil && (spec.PVC.DataSource != nil || spec.PVC.DataSourceRef != nil) ||
		spec.Storage != nil && (spec.Storage.DataSource != nil || spec.Storage.DataSourceRef != nil)
	switch {
	case spec.Source != nil && spec.SourceRef != nil:
		errs = append(errs, field.Forbidden(at.Child("sourceRef"), "cannot be set together with source; keep one"))
	case spec.Source != nil:
		switch n := pointers(*spec.Source); {
		case n == 0:
			errs = append(errs, field.Required(at.Child("source"),
				"is empty; use one of blank, http, registry, pvc, snapshot, s3, gcs, imageio, upload, vddk"))
		case n > 1:
			errs = append(errs, field.Forbidden(at.Child("source"), "has more than one source; keep one"))
		}
	case spec.SourceRef != nil:
		if spec.SourceRef.Kind != cdiv1.DataVolumeDataSource {
			errs = append(errs, field.Invalid(at.Child("sourceRef", "kind"), spec.SourceRef.Kind,
				fmt.Sprintf("%q is not supported; use %s", spec.SourceRef.Kind, cdiv1.DataVolumeDataSource)))
		}
		errs = append(errs, validateObjectName(spec.SourceRef.Name, at.Child("sourceRef", "name"))...)
	case !populated:
		errs = append(errs, field.Required(at.Child("source"),
			"is not set; it says what fills the volume (or use sourceRef, or storage.dataSourceRef)"))
	}
	return errs
}
