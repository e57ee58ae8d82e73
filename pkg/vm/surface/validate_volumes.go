package surface

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// maxVolumeLabel is the longest label of an ISO image, bytes.
const maxVolumeLabel = 32

// volumeLabelPattern matches labels that every guest can read.
var volumeLabelPattern = regexp.MustCompile(`^[A-Za-z0-9_. -]*$`)

// downwardFieldPattern are the fields of a pod that Kubernetes offers in a volume.
var downwardFieldPattern = regexp.MustCompile(
	`^metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])$`,
)

// validateOtherVolume checks the volumes that are images made for the guest, and ephemeral ones. others has what there
// may be once only.
func validateOtherVolume(volume *v1.Volume, at *field.Path, others *onlyOne) field.ErrorList {
	switch {
	case volume.Ephemeral != nil:
		return validateEphemeral(volume.Ephemeral, at.Child("ephemeral"))
	case volume.DownwardMetrics != nil:
		return others.volume("downwardMetrics", volume.Name, at.Child("downwardMetrics"))
	case volume.HostDisk != nil:
		return validateHostDisk(volume.HostDisk, at.Child("hostDisk"))
	case volume.ConfigMap != nil:
		here := at.Child("configMap")
		return append(validateObjectName(volume.ConfigMap.Name, here.Child("name")),
			validateVolumeLabel(volume.ConfigMap.VolumeLabel, here)...)
	case volume.Secret != nil:
		here := at.Child("secret")
		return append(validateObjectName(volume.Secret.SecretName, here.Child("secretName")),
			validateVolumeLabel(volume.Secret.VolumeLabel, here)...)
	case volume.ServiceAccount != nil:
		here := at.Child("serviceAccount")
		errs := validateObjectName(volume.ServiceAccount.ServiceAccountName, here.Child("serviceAccountName"))
		return append(errs, others.volume("serviceAccount", volume.Name, here)...)
	case volume.DownwardAPI != nil:
		return validateDownwardAPI(volume.DownwardAPI, at.Child("downwardAPI"))
	}
	return nil
}

// onlyOne finds the second volume of a kind that there may be one of.
type onlyOne map[string]string

func (o *onlyOne) volume(kind, name string, at *field.Path) field.ErrorList {
	if first, twice := (*o)[kind]; twice {
		return field.ErrorList{field.Forbidden(at,
			fmt.Sprintf("the volume %q is one already; there can be one %s volume only", first, kind))}
	}
	if *o == nil {
		*o = onlyOne{}
	}
	(*o)[kind] = name
	return nil
}

func validateEphemeral(source *v1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	if source.PersistentVolumeClaim == nil {
		return field.ErrorList{
			field.Required(at.Child("persistentVolumeClaim"), "is not set; it is the claim that the guest reads"),
		}
	}
	return nil
}

func validateHostDisk(disk *v1.HostDisk, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if disk.Path == "" {
		errs = append(errs, field.Required(at.Child("path"),
			"is not set; it is where the node has the image, such as /var/lib/disks/web.img"))
	} else {
		errs = append(errs, validateImagePath(disk.Path, at.Child("path"))...)
	}
	switch {
	case disk.Type == "":
		errs = append(errs, field.Required(at.Child("type"), "is not set; use "+alternatives(hostDiskTypes)))
	case disk.Capacity.Sign() < 0:
		errs = append(errs, field.Invalid(at.Child("capacity"), disk.Capacity.String(), "must not be negative"))
	case disk.Type == v1.HostDiskExists && disk.Capacity.Sign() != 0:
		errs = append(errs, field.Forbidden(at.Child("capacity"),
			"has no effect on an image that is there; remove it, or use type: DiskOrCreate"))
	}
	return errs
}

func validateVolumeLabel(label string, at *field.Path) field.ErrorList {
	if len(label) > maxVolumeLabel || !volumeLabelPattern.MatchString(label) {
		return field.ErrorList{field.Invalid(at.Child("volumeLabel"), label,
			fmt.Sprintf("must be at most %d letters, digits, spaces and any of _ . -", maxVolumeLabel))}
	}
	return nil
}

// validateDownwardAPI checks what the pod would be refused for, since nobody but its creator hears of that.
func validateDownwardAPI(source *v1.DownwardAPIVolumeSource, at *field.Path) field.ErrorList {
	errs := validateVolumeLabel(source.VolumeLabel, at)
	errs = append(errs, tooMany(len(source.Fields), at.Child("fields"))...)
	seen := map[string]bool{}
	for i := range source.Fields {
		item, here := &source.Fields[i], at.Child("fields").Index(i)
		switch p := item.Path; {
		case p == "":
			errs = append(errs, field.Required(here.Child("path"), "is not set; it is the name of the file"))
		case path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, ".."):
			errs = append(errs,
				field.Invalid(here.Child("path"), p, fmt.Sprintf("%q is not a relative path without . or ..", p)))
		case seen[p]:
			errs = append(errs, duplicate(here.Child("path"), p, "file"))
		}
		seen[item.Path] = true
		switch ref := item.ResourceFieldRef; {
		case item.FieldRef == nil && ref == nil:
			errs = append(errs, field.Required(here, "has neither fieldRef nor resourceFieldRef; set one"))
		case item.FieldRef != nil && ref != nil:
			errs = append(errs, field.Forbidden(here, "has both fieldRef and resourceFieldRef; keep one"))
		case ref != nil && ref.ContainerName != "" && ref.ContainerName != names.ContainerCompute:
			errs = append(errs, field.Invalid(here.Child("resourceFieldRef", "containerName"), ref.ContainerName,
				fmt.Sprintf("%q is no container of the pod; use %s, or leave it out", ref.ContainerName,
					names.ContainerCompute)))
		case ref != nil && ref.Resource == "":
			errs = append(errs,
				field.Required(here.Child("resourceFieldRef", "resource"), "is not set; use one such as limits.memory"))
		case item.FieldRef != nil && !downwardFieldPattern.MatchString(item.FieldRef.FieldPath):
			errs = append(errs, field.Invalid(here.Child("fieldRef", "fieldPath"), item.FieldRef.FieldPath,
				fmt.Sprintf("%q is not supported in a volume; use metadata.name, namespace, uid, labels, "+
					"annotations, labels['KEY'] or annotations['KEY']", item.FieldRef.FieldPath)))
		}
	}
	return errs
}

// validateKernelBoot checks the kernel that a guest boots instead of one on its disks.
func validateKernelBoot(firmware *v1.Firmware, at *field.Path) field.ErrorList {
	if firmware == nil || firmware.KernelBoot == nil {
		return nil
	}
	source := firmware.KernelBoot.Container
	at = at.Child("firmware", "kernelBoot")
	if source == nil {
		if firmware.KernelBoot.KernelArgs == "" {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("kernelArgs"),
			"there is no kernel that would read them; name one in kernelBoot.container")}
	}
	at = at.Child("container")
	errs := validateImage(source.Image, at.Child("image"))
	if source.ImagePullSecret != "" {
		errs = append(errs, validateObjectName(source.ImagePullSecret, at.Child("imagePullSecret"))...)
	}
	if source.KernelPath == "" {
		errs = append(errs, field.Required(at.Child("kernelPath"),
			"is not set; it is where the image has the kernel, such as /boot/vmlinuz"))
	}
	errs = append(errs, validateImagePath(source.KernelPath, at.Child("kernelPath"))...)
	return append(errs, validateImagePath(source.InitrdPath, at.Child("initrdPath"))...)
}

func validateImage(image string, at *field.Path) field.ErrorList {
	switch {
	case image == "":
		return field.ErrorList{field.Required(at, "is not set")}
	case len(image) > 4096 || !imagePattern.MatchString(image):
		return field.ErrorList{
			field.Invalid(at, image, fmt.Sprintf("%q is not an image reference such as quay.io/org/disk:tag", image)),
		}
	}
	return nil
}

// validateImagePath checks the path of a file in an image; empty is none.
func validateImagePath(name string, at *field.Path) field.ErrorList {
	if name != "" && (!path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0)) {
		return field.ErrorList{
			field.Invalid(at, name, fmt.Sprintf("%q is not an absolute path to a file without . or ..", name)),
		}
	}
	return nil
}
