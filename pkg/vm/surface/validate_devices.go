package surface

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

// validateDevices checks the devices other than disks and interfaces.
func validateDevices(devices *v1.Devices, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, input := range devices.Inputs {
		at := path.Child("inputs").Index(i)
		switch {
		case input.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "is not set"))
		case !cpuNamePattern.MatchString(input.Name):
			errs = append(errs, field.Invalid(at.Child("name"), input.Name,
				fmt.Sprintf("%q is not a device name; use letters, digits, - and _", input.Name)))
		case seen[input.Name]:
			errs = append(errs, duplicate(at.Child("name"), input.Name, "input"))
		}
		seen[input.Name] = true
	}
	errs = append(errs, tooMany(len(devices.Inputs), path.Child("inputs"))...)
	errs = append(errs, tooMany(len(devices.PanicDevices), path.Child("panicDevices"))...)
	if watchdog := devices.Watchdog; watchdog != nil {
		at := path.Child("watchdog")
		if !cpuNamePattern.MatchString(watchdog.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), watchdog.Name,
				fmt.Sprintf("%q is not a device name; use letters, digits, - and _", watchdog.Name)))
		}
		if watchdog.I6300ESB == nil {
			errs = append(errs,
				field.Required(at.Child("i6300esb"), "is not set; it is the one kind of watchdog there is"))
		}
	}
	errs = append(errs, validateHostDevices(devices, path)...)
	errs = append(errs, validateSound(devices.Sound, path.Child("sound"))...)
	if devices.Video != nil && !peripherals.Graphics(devices) {
		errs = append(errs,
			field.Forbidden(path.Child("video"), "cannot be set when autoattachGraphicsDevice is false"))
	}
	return errs
}

// validateBootOrder checks that no two devices are booted from at once.
func validateBootOrder(devices *v1.Devices, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[uint]string{}
	check := func(order *uint, name string, at *field.Path) {
		if order == nil {
			return
		}
		at = at.Child("bootOrder")
		if *order == 0 {
			errs = append(errs, field.Invalid(at, 0, "must be 1 or more; 1 is booted from first"))
			return
		}
		if other, ok := taken[*order]; ok {
			errs = append(errs, field.Invalid(at, *order,
				fmt.Sprintf("%d is the boot order of %q too; give each device its own", *order, other)))
		}
		taken[*order] = name
	}
	for i, disk := range devices.Disks {
		check(disk.BootOrder, disk.Name, path.Child("disks").Index(i))
	}
	for i, nic := range devices.Interfaces {
		check(nic.BootOrder, nic.Name, path.Child("interfaces").Index(i))
	}
	return errs
}

func tooMany(n int, path *field.Path) field.ErrorList {
	if n <= maxDevices {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("has %d entries; the most is %d", n, maxDevices))}
}
