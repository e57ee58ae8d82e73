package surface

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// MaxInlineCloudInit is the most user data, and network data, that a spec may carry itself, in decoded
// bytes; KubeVirt's limit. More belongs in a Secret.
const MaxInlineCloudInit = 2048

// imagePattern matches image references by their characters; the kubelet parses them.
var imagePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]*$`)

// validateDisks checks the guest's disks, and that each has its volume; each volume has its disk by default.
func validateDisks(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("domain", "devices", "disks")
	errs := tooMany(len(spec.Domain.Devices.Disks), at)
	volumes := map[string]*v1.Volume{}
	for i := range spec.Volumes {
		volumes[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	disks := map[string]bool{}
	for i := range spec.Domain.Devices.Disks {
		disk := &spec.Domain.Devices.Disks[i]
		here := at.Index(i)
		switch { // the name's form is checked with the volume's
		case disk.Name == "":
			errs = append(errs, field.Required(here.Child("name"), "is not set"))
		case disks[disk.Name]:
			errs = append(errs, duplicate(here.Child("name"), disk.Name, "disk"))
		case volumes[disk.Name] == nil && disk.CDRom == nil: // a CD-ROM drive may be empty
			errs = append(errs, field.NotFound(here.Child("name"), disk.Name))
			errs[len(errs)-1].Detail = fmt.Sprintf("no volume is named %q; add it to volumes or remove the "+
				"disk", disk.Name)
		}
		disks[disk.Name] = true
		errs = append(errs, validateDisk(disk, volumes[disk.Name], here)...)
		if volume := volumes[disk.Name]; volume != nil && hotplug.Is(volume) {
			errs = append(errs, validateHotplugged(disk, &spec.Domain.Devices, here)...)
		}
	}
	return errs
}

// validateHotplugged checks the disk of a volume that is plugged in while the guest runs.
func validateHotplugged(disk *v1.Disk, devices *v1.Devices, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if devices.DisableHotplug {
		errs = append(errs,
			field.Forbidden(at, "cannot be plugged in: domain.devices.disableHotplug is set; remove it"))
	}
	if disk.BootOrder != nil && disk.CDRom == nil { // a drive is there from the start
		errs = append(errs, field.Forbidden(at.Child("bootOrder"),
			"the disk is plugged in once the guest runs, so it cannot boot from it; remove bootOrder"))
	}
	kind, bus := "disk", v1.DiskBus("")
	switch {
	case disk.CDRom != nil:
		kind, bus = "cdrom", disk.CDRom.Bus
	case disk.LUN != nil:
		kind, bus = "lun", disk.LUN.Bus
	case disk.Disk != nil:
		bus = disk.Disk.Bus
	}
	buses := map[string][]string{"disk": {"scsi", "virtio"}, "lun": {"scsi"}, "cdrom": {"sata", "scsi"}}[kind]
	if bus != "" && !slices.Contains(buses, string(bus)) {
		errs = append(errs, field.Invalid(at.Child(kind, "bus"), bus,
			fmt.Sprintf("%q cannot be plugged in while the guest runs; use %s", bus, alternatives(buses))))
	}
	return errs
}

func validateDisk(disk *v1.Disk, volume *v1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	kinds := 0
	for _, set := range []bool{disk.Disk != nil, disk.CDRom != nil, disk.LUN != nil} {
		if set {
			kinds++
		}
	}
	if kinds > 1 {
		errs = append(errs, field.Forbidden(at, "is more than one of disk, cdrom and lun; keep one"))
	}
	if disk.Disk != nil && disk.Disk.Bus == v1.DiskBusSATA {
		readOnlyClaim := volume != nil && volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ReadOnly
		if disk.Disk.ReadOnly || readOnlyClaim || volume != nil && volume.DownwardMetrics != nil {
			errs = append(errs, field.Forbidden(at.Child("disk", "bus"),
				"a sata disk cannot be read-only; use virtio or scsi, or a cdrom"))
		}
	}
	if s := disk.Serial; s != "" && (len(s) > maxSerial || !serialPattern.MatchString(s)) {
		errs = append(errs, field.Invalid(at.Child("serial"),
			s, fmt.Sprintf("must be at most %d letters, digits and any of - _ . +", maxSerial)))
	}
	if disk.IO == v1.IONative && (disk.Cache == v1.CacheWriteBack || disk.Cache == v1.CacheWriteThrough) {
		errs = append(errs, field.Forbidden(at.Child("io"), "native needs cache: none; change one of them"))
	}
	errs = append(errs, validateTransport(disk, volume, at)...)
	if size := disk.BlockSize; size != nil && size.Custom != nil {
		for _, block := range []struct {
			name string
			n    uint
		}{{"logical", size.Custom.Logical}, {"physical", size.Custom.Physical}} {
			if n := block.n; n < 512 || n > 2<<20 || n&(n-1) != 0 {
				errs = append(errs, field.Invalid(at.Child("blockSize", "custom", block.name), n,
					fmt.Sprintf("%d is not a power of two from 512 to 2097152 (bytes)", n)))
			}
		}
		if size.Custom.Logical > size.Custom.Physical {
			errs = append(errs, field.Invalid(at.Child("blockSize", "custom", "logical"), size.Custom.Logical,
				"must not be more than physical"))
		}
	}
	return errs
}

// validateDeviceName checks the name of a disk, volume, interface or network.
func validateDeviceName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "is not set")}
	}
	if n := len(name); n > validation.DNS1123LabelMaxLength {
		return field.ErrorList{field.Invalid(at, name,
			fmt.Sprintf("has %d characters; %d is the most", n, validation.DNS1123LabelMaxLength))}
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return field.ErrorList{
			field.Invalid(at, name, fmt.Sprintf("%q is not a name: use lower-case letters, digits and -", name)),
		}
	}
	return nil
}

func validateVolumes(volumes []v1.Volume, at *field.Path) field.ErrorList {
	errs := tooMany(len(volumes), at)
	seen := map[string]bool{}
	diskOf := map[string]string{}
	cloudInits, others := 0, onlyOne{}
	for i := range volumes {
		volume := &volumes[i]
		here := at.Index(i)
		errs = append(errs, validateDeviceName(volume.Name, here.Child("name"))...)
		if seen[volume.Name] && volume.Name != "" {
			errs = append(errs, duplicate(here.Child("name"), volume.Name, "volume"))
		}
		seen[volume.Name] = true
		switch n := pointers(volume.VolumeSource); {
		case n == 0:
			errs = append(errs, field.Required(here, "has no source; use one such as containerDisk, "+
				"persistentVolumeClaim, dataVolume, cloudInitNoCloud, emptyDisk, configMap or secret"))
		case n > 1:
			errs = append(errs, field.Forbidden(here, "has more than one source; keep one"))
		}
		switch {
		case volume.ContainerDisk != nil:
			errs = append(errs, validateContainerDisk(volume.ContainerDisk, here.Child("containerDisk"))...)
		case claims.Of(volume) != nil:
			name := claims.Name(volume)
			where := here.Child("persistentVolumeClaim", "claimName")
			switch {
			case volume.DataVolume != nil:
				where = here.Child("dataVolume", "name")
			case volume.Ephemeral != nil:
				where = here.Child("ephemeral", "persistentVolumeClaim", "claimName")
			}
			errs = append(errs, validateObjectName(name, where)...)
			if other := diskOf[name]; other != "" {
				errs = append(errs, field.Invalid(where, name,
					fmt.Sprintf("claim %q is the disk %q already; a claim can be one disk only", name, other)))
			}
			diskOf[name] = volume.Name
		case volume.EmptyDisk != nil:
			if volume.EmptyDisk.Capacity.Sign() <= 0 {
				errs = append(errs, field.Invalid(here.Child("emptyDisk", "capacity"),
					volume.EmptyDisk.Capacity.String(), "must be more than zero, such as 1Gi"))
			}
		case volume.Sysprep != nil:
			errs = append(errs, validateSysprep(volume.Sysprep, here.Child("sysprep"))...)
		case volume.CloudInitNoCloud != nil:
			if cloudInits++; cloudInits > 1 {
				errs = append(errs, field.Forbidden(here.Child("cloudInitNoCloud"),
					"there is another cloud-init volume; a guest reads only one"))
			}
			errs = append(errs, validateCloudInit(volume.CloudInitNoCloud, here.Child("cloudInitNoCloud"))...)
		case volume.CloudInitConfigDrive != nil:
			if cloudInits++; cloudInits > 1 {
				errs = append(errs, field.Forbidden(here.Child("cloudInitConfigDrive"),
					"there is another cloud-init volume; a guest reads only one"))
			}
			source := v1.CloudInitNoCloudSource(*volume.CloudInitConfigDrive)
			errs = append(errs, validateCloudInit(&source, here.Child("cloudInitConfigDrive"))...)
		default:
			errs = append(errs, validateOtherVolume(volume, here, &others)...)
		}
	}
	return errs
}

func validateSysprep(source *v1.SysprepSource, at *field.Path) field.ErrorList {
	switch {
	case source.ConfigMap != nil && source.Secret != nil:
		return field.ErrorList{field.Forbidden(at, "has both configMap and secret; keep one")}
	case source.ConfigMap != nil:
		return validateObjectName(source.ConfigMap.Name, at.Child("configMap", "name"))
	case source.Secret != nil:
		return validateObjectName(source.Secret.Name, at.Child("secret", "name"))
	}
	return field.ErrorList{field.Required(at, "has no source; use configMap or secret")}
}

// pointers counts the pointers of a struct that are set: the sources of a volume for example, whether they are
// supported or not.
func pointers(of any) int {
	v, n := reflect.ValueOf(of), 0
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Pointer && !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func validateObjectName(name string, at *field.Path) field.ErrorList {
	return validateRequiredName(name, at, "the name of an object", validation.IsDNS1123Subdomain)
}

// validateRequiredName checks a name that has to be there; problems is Kubernetes' rule for what it is.
func validateRequiredName(
	name string, at *field.Path, what string, problems func(string) []string,
) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "is not set")}
	}
	if found := problems(name); len(found) > 0 {
		return field.ErrorList{field.Invalid(at, name, fmt.Sprintf("%q is not %s: %s", name, what, found[0]))}
	}
	return nil
}

func validateContainerDisk(disk *v1.ContainerDiskSource, at *field.Path) field.ErrorList {
	errs := validateImage(disk.Image, at.Child("image"))
	if disk.ImagePullSecret != "" {
		errs = append(errs, validateObjectName(disk.ImagePullSecret, at.Child("imagePullSecret"))...)
	}
	return append(errs, validateImagePath(disk.Path, at.Child("path"))...)
}

func validateCloudInit(source *v1.CloudInitNoCloudSource, at *field.Path) field.ErrorList {
	user := data{
		text: source.UserData, encoded: source.UserDataBase64, secret: source.UserDataSecretRef,
		textField: "userData", encodedField: "userDataBase64", secretField: "secretRef",
	}
	network := data{
		text: source.NetworkData, encoded: source.NetworkDataBase64, secret: source.NetworkDataSecretRef,
		textField: "networkData", encodedField: "networkDataBase64", secretField: "networkDataSecretRef",
	}
	if user.given()+network.given() == 0 {
		return field.ErrorList{field.Required(at, "has no data; set userData, userDataBase64 or secretRef")}
	}
	return append(user.validate(at), network.validate(at)...)
}

// data is one document of cloud-init in the three ways to give it.
type data struct {
	text, encoded                        string
	secret                               *corev1.LocalObjectReference
	textField, encodedField, secretField string
}

func (d data) given() int {
	n := 0
	for _, set := range []bool{d.text != "", d.encoded != "", d.secret != nil} {
		if set {
			n++
		}
	}
	return n
}

func (d data) validate(at *field.Path) field.ErrorList {
	if d.given() > 1 {
		return field.ErrorList{field.Forbidden(at.Child(d.textField),
			fmt.Sprintf("more than one of %s, %s and %s is set; keep one", d.textField, d.encodedField, d.secretField))}
	}
	var errs field.ErrorList
	tooLong := func(n int, where string) {
		if n > MaxInlineCloudInit {
			errs = append(errs, field.Invalid(at.Child(where), n, fmt.Sprintf(
				"has %d bytes; %d is the most in a spec, so put it into a Secret and name it in %s", n,
				MaxInlineCloudInit, d.secretField)))
		}
	}
	tooLong(len(d.text), d.textField)
	if d.encoded != "" {
		decoded, err := base64.StdEncoding.DecodeString(d.encoded)
		if err != nil {
			errs = append(errs, field.Invalid(at.Child(d.encodedField), "", fmt.Sprintf("is not base64: %v", err)))
		}
		tooLong(len(decoded), d.encodedField)
	}
	if d.secret != nil {
		errs = append(errs, validateObjectName(d.secret.Name, at.Child(d.secretField, "name"))...)
	}
	return errs
}
