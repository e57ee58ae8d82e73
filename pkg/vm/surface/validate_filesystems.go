package surface

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// validateFilesystems checks the volumes that the guest has as file systems.
func validateFilesystems(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("domain", "devices", "filesystems")
	errs := tooMany(len(spec.Domain.Devices.Filesystems), at)
	used := map[string]string{}
	for i := range spec.Domain.Devices.Disks {
		used[spec.Domain.Devices.Disks[i].Name] = "disk"
	}
	for i := range spec.Domain.Devices.Filesystems {
		f, here := &spec.Domain.Devices.Filesystems[i], at.Index(i)
		if f.Virtiofs == nil {
			errs = append(errs, field.Required(here.Child("virtiofs"), "is not set; write virtiofs: {}"))
		}
		volume := hotplug.Volume(spec, f.Name)
		switch other := used[f.Name]; { // the name's form is checked with the volume's
		case f.Name == "":
			errs = append(errs, field.Required(here.Child("name"), "is not set"))
		case other != "":
			errs = append(errs, field.Duplicate(here.Child("name"), f.Name))
			errs[len(errs)-1].Detail = fmt.Sprintf("the volume is another %s already; a volume can be one disk, or "+
				"one file system", other)
		case volume == nil:
			errs = append(errs, field.NotFound(here.Child("name"), f.Name))
			errs[len(errs)-1].Detail = fmt.Sprintf("no volume is named %q; add it to volumes or remove the file "+
				"system", f.Name)
		case len(f.Name) > filesystems.MaxTag:
			errs = append(errs, field.Invalid(here.Child("name"), f.Name,
				fmt.Sprintf("has %d characters; a file system's can have %d", len(f.Name), filesystems.MaxTag)))
		case !claims.Storage(volume) && !filesystems.Configuration(volume):
			errs = append(errs, field.Forbidden(here, fmt.Sprintf(
				"the volume %q cannot be a file system; use a persistentVolumeClaim, dataVolume, configMap, secret, "+
					"serviceAccount or downwardAPI", f.Name)))
		case hotplug.Is(volume):
			errs = append(errs,
				field.Forbidden(here, fmt.Sprintf("the volume %q is hotpluggable, and file systems cannot be plugged "+
					"in; remove hotpluggable", f.Name)))
		}
		used[f.Name] = "file system"
	}
	return errs
}
