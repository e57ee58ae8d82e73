package surface

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

const (
	// minMemory is the least memory, bytes, with which firmware and a kernel of any kind come up, and
	// minMemoryEFI the same for UEFI, which takes more for itself.
	minMemory    = 32 << 20
	minMemoryEFI = 128 << 20
	// maxSerial is the longest serial number; KubeVirt's limit.
	maxSerial = 256
	// maxDevices is the longest list of disks, volumes, interfaces, …; KubeVirt's limit.
	maxDevices = 256
)

var (
	uuidPattern = regexp.MustCompile(
		`^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$`,
	)
	serialPattern   = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)
	cpuNamePattern  = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)
	timezonePattern = regexp.MustCompile(`^[A-Za-z0-9_+/-]+$`)
	printable       = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

func validateDomain(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	errs := validateResources(&domain.Resources, path.Child("resources"))
	errs = append(errs, validateCPU(domain, path)...)
	errs = append(errs, validateMemory(domain, path)...)
	errs = append(errs, validateSizing(domain, path)...)
	if domain.Machine != nil {
		errs = append(errs, validateMachineType(domain.Machine.Type, path.Child("machine", "type"))...)
	}
	errs = append(errs, validateFirmware(domain, path)...)
	errs = append(errs, validateKernelBoot(domain.Firmware, path)...)
	if clock := domain.Clock; clock != nil {
		zone := clock.Timezone
		switch {
		case zone != nil && clock.UTC != nil:
			errs = append(errs,
				field.Forbidden(path.Child("clock", "timezone"), "cannot be set together with utc; remove one"))
		case zone != nil && !timezonePattern.MatchString(string(*zone)):
			errs = append(errs, field.Invalid(path.Child("clock", "timezone"), *zone,
				fmt.Sprintf("%q is not a time zone such as Europe/Vienna", *zone)))
		}
	}
	if chassis := domain.Chassis; chassis != nil {
		for _, text := range []struct{ name, value string }{
			{"manufacturer", chassis.Manufacturer},
			{"version", chassis.Version},
			{"serial", chassis.Serial},
			{"asset", chassis.Asset},
			{"sku", chassis.Sku},
		} {
			errs = append(errs, validateText(text.value, path.Child("chassis", text.name))...)
		}
	}
	errs = append(errs, validateEncryption(domain, path)...)
	errs = append(errs, validateHyperv(domain, path)...)
	errs = append(errs, validateIOThreads(domain, path)...)
	return append(errs, validateDevices(&domain.Devices, path.Child("devices"))...)
}

func validateText(value string, path *field.Path) field.ErrorList {
	if len(value) > maxSerial || !printable.MatchString(value) {
		return field.ErrorList{
			field.Invalid(path, value, fmt.Sprintf("must be at most %d printable ASCII characters", maxSerial)),
		}
	}
	return nil
}

func validateResources(resources *v1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if quantity, ok := list.of[name]; ok && quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(path.Child(list.name, string(name)), quantity.String(),
					fmt.Sprintf("%s must not be negative", quantity.String())))
			}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, requested := resources.Requests[name]
		limit, limited := resources.Limits[name]
		if requested && limited && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests", string(name)), request.String(),
				fmt.Sprintf("%s is more than the limit of %s", request.String(), limit.String())))
		}
	}
	return errs
}

func validateCPU(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	cpu := domain.CPU
	if cpu == nil {
		return nil
	}
	var errs field.ErrorList
	vcpus := sizing.Product(cpu)
	if vcpus > sizing.MaxVCPUs {
		errs = append(errs, field.Invalid(path.Child("cpu"), vcpus, fmt.Sprintf(
			"%d sockets × %d cores × %d threads are too many vCPUs; the most is %d", cpu.Sockets, cpu.Cores,
			cpu.Threads, sizing.MaxVCPUs)))
	}
	asked, where := domain.Resources.Requests[corev1.ResourceCPU], "requests"
	if limit, ok := domain.Resources.Limits[corev1.ResourceCPU]; ok && asked.IsZero() {
		asked, where = limit, "limits"
	}
	if asked.Value() > vcpus {
		errs = append(errs, field.Invalid(path.Child("resources", where, "cpu"), asked.String(), fmt.Sprintf(
			"%s asks for more CPUs than the guest has: %d sockets × %d cores × %d threads = %d; lower it or raise "+
				"domain.cpu",
			asked.String(), cpu.Sockets, cpu.Cores, cpu.Threads, vcpus)))
	}
	errs = append(errs, validateCPUModel(cpu.Model, path.Child("cpu", "model"))...)
	seen := map[string]bool{}
	for i, feature := range cpu.Features {
		at := path.Child("cpu", "features").Index(i).Child("name")
		switch {
		case feature.Name == "":
			errs = append(errs, field.Required(at, "is not set"))
		case !cpuNamePattern.MatchString(feature.Name):
			errs = append(errs,
				field.Invalid(at, feature.Name, fmt.Sprintf("%q is not the name of a CPU feature", feature.Name)))
		case seen[feature.Name]:
			errs = append(errs, duplicate(at, feature.Name, "CPU feature"))
		}
		seen[feature.Name] = true
	}
	return errs
}

func validateCPUModel(model string, path *field.Path) field.ErrorList {
	if model == "" || cpuNamePattern.MatchString(model) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, model,
		fmt.Sprintf("%q is not a CPU model; use host-model, host-passthrough or a name such as Skylake-Server", model))}
}

func validateMemory(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	at := path.Child("memory", "guest")
	if domain.Memory == nil || domain.Memory.Guest == nil {
		return field.ErrorList{
			field.Required(at, "is not set, and neither is a memory request; set the guest's memory, such as 1Gi"),
		}
	}
	guest := domain.Memory.Guest
	if guest.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, guest.String(),
			fmt.Sprintf("%s is no memory; set more than zero, such as 1Gi", guest.String()))}
	}
	var errs field.ErrorList
	if guest.CmpInt64(sizing.MaxMemory) > 0 {
		errs = append(errs, field.Invalid(at, guest.String(),
			fmt.Sprintf("%s is more than any machine has; the most is 1Ei", guest.String())))
	}
	if limit, ok := domain.Resources.Limits[corev1.ResourceMemory]; ok && guest.Cmp(limit) > 0 {
		errs = append(errs, field.Invalid(at, guest.String(),
			fmt.Sprintf("%s is more than resources.limits.memory (%s); raise the limit", guest.String(),
				limit.String())))
	}
	return errs
}

// leastMemory returns the memory, bytes, that a guest needs to come up, and the firmware for which that is. With less
// its QEMU still runs.
func leastMemory(domain *v1.DomainSpec) (least int64, firmware string) {
	if EFI(domain) != nil {
		return minMemoryEFI, "UEFI"
	}
	return minMemory, "BIOS"
}

func validateMachineType(machine string, path *field.Path) field.ErrorList {
	if machine == "" || IsQ35(machine) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, machine,
		fmt.Sprintf("%q is not supported; use q35 or a version of it such as pc-q35-9.2", machine))}
}

// EFI returns the UEFI section, nil for BIOS.
func EFI(domain *v1.DomainSpec) *v1.EFI {
	if domain.Firmware == nil || domain.Firmware.Bootloader == nil {
		return nil
	}
	return domain.Firmware.Bootloader.EFI
}

func validateFirmware(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	firmware := domain.Firmware
	if firmware == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("firmware")
	if id := string(firmware.UUID); id != "" && !uuidPattern.MatchString(id) {
		errs = append(errs, field.Invalid(at.Child("uuid"), id, fmt.Sprintf("%q is not a UUID", id)))
	}
	errs = append(errs, validateText(firmware.Serial, at.Child("serial"))...)
	if firmware.Bootloader == nil {
		return errs
	}
	if firmware.Bootloader.BIOS != nil && firmware.Bootloader.EFI != nil {
		errs = append(errs, field.Forbidden(at.Child("bootloader"), "has both bios and efi; remove one"))
	}
	if boot := firmware.Bootloader.EFI; boot != nil && (boot.SecureBoot == nil || *boot.SecureBoot) &&
		domain.Features != nil && domain.Features.SMM != nil &&
		domain.Features.SMM.Enabled != nil && !*domain.Features.SMM.Enabled {
		errs = append(errs, field.Forbidden(path.Child("features", "smm", "enabled"),
			"cannot be off with Secure Boot; set firmware.bootloader.efi.secureBoot to false or leave SMM out"))
	}
	return errs
}

func duplicate(path *field.Path, value, what string) *field.Error {
	err := field.Duplicate(path, value)
	err.Detail = fmt.Sprintf("%q is the name of another %s too; give each its own", value, what)
	return err
}
