package surface

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

var (
	// aliasPattern matches names that libvirt can have in an alias.
	aliasPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	pciSelector  = regexp.MustCompile(`^[[:xdigit:]]{4}:[[:xdigit:]]{4}$`)
	usbSelector  = regexp.MustCompile(`^[[:xdigit:]]{1,4}$`)
)

// permitted returns the resources of devices of nodes that a configuration lets guests have; nil for none.
func permitted(devices *v1.PermittedHostDevices) map[string]bool {
	if devices == nil {
		return nil
	}
	out := map[string]bool{}
	for i := range devices.PciHostDevices {
		out[devices.PciHostDevices[i].ResourceName] = true
	}
	for i := range devices.MediatedDevices {
		out[devices.MediatedDevices[i].ResourceName] = true
	}
	for i := range devices.USB {
		out[devices.USB[i].ResourceName] = true
	}
	return out
}

// validatePermitted reports devices of nodes that this installation does not let guests have.
func (a Allowed) validatePermitted(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(kind, resource string, at *field.Path) {
		if resource == "" || a.Devices[resource] {
			return
		}
		errs = append(errs, field.Forbidden(at.Child("deviceName"), fmt.Sprintf(
			"%s %s is not permitted in permittedHostDevices configuration; an administrator can add it to "+
				"spec.configuration.permittedHostDevices of the KubeVirt resource", kind, resource)))
	}
	devices := at.Child("domain", "devices")
	for i := range spec.Domain.Devices.GPUs {
		check("GPU", spec.Domain.Devices.GPUs[i].DeviceName, devices.Child("gpus").Index(i))
	}
	for i := range spec.Domain.Devices.HostDevices {
		check("HostDevice", spec.Domain.Devices.HostDevices[i].DeviceName, devices.Child("hostDevices").Index(i))
	}
	return errs
}

// validateHostDevices checks the devices of the node that a guest is to have.
func validateHostDevices(devices *v1.Devices, path *field.Path) field.ErrorList {
	errs := slices.Concat(tooMany(len(devices.GPUs), path.Child("gpus")),
		tooMany(len(devices.HostDevices), path.Child("hostDevices")))
	seen := map[string]bool{}
	check := func(kind, name, resource string, at *field.Path) {
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), "is not set"))
		case !aliasPattern.MatchString(name):
			errs = append(errs, field.Invalid(at.Child("name"), name,
				fmt.Sprintf("%q is not a device name; use letters, digits, - and _", name)))
		case seen[name]:
			errs = append(errs, duplicate(at.Child("name"), name, "gpu or hostDevice"))
		}
		seen[name] = true
		if resource == "" {
			errs = append(errs, field.Required(at.Child("deviceName"), "is not set; name the resource of the "+kind+
				", one of configuration.permittedHostDevices of the KubeVirt resource"))
			return
		}
		errs = append(errs, validateResourceName(resource, at.Child("deviceName"))...)
	}
	framebuffer := ""
	for i := range devices.GPUs {
		d, at := &devices.GPUs[i], path.Child("gpus").Index(i)
		check("GPU", d.Name, d.DeviceName, at)
		if d.VirtualGPUOptions == nil || d.VirtualGPUOptions.Display == nil {
			continue
		}
		display, at := d.VirtualGPUOptions.Display, at.Child("virtualGPUOptions", "display")
		shown := display.Enabled == nil || *display.Enabled
		early := shown && (display.RamFB == nil || display.RamFB.Enabled == nil || *display.RamFB.Enabled)
		switch {
		case shown && !peripherals.Graphics(devices):
			errs = append(errs, field.Forbidden(at,
				"needs a screen, and autoattachGraphicsDevice is false; set enabled: false or remove that"))
		case early && framebuffer != "":
			errs = append(errs,
				field.Forbidden(at.Child("ramFB"),
					fmt.Sprintf("a guest has one such framebuffer, and GPU %q has it; set ramFB.enabled: false",
						framebuffer)))
		case early:
			framebuffer = d.Name
		}
	}
	for i := range devices.HostDevices {
		d := &devices.HostDevices[i]
		check("device", d.Name, d.DeviceName, path.Child("hostDevices").Index(i))
	}
	return errs
}

// validateResourceName checks the name of an extended resource, as the kubelet does.
func validateResourceName(name string, at *field.Path) field.ErrorList {
	domain, _, ok := strings.Cut(name, "/")
	switch problems := validation.IsQualifiedName(name); {
	case !ok:
		return field.ErrorList{
			field.Invalid(at, name, fmt.Sprintf("%q is not the name of a resource such as vendor.com/device", name)),
		}
	case len(problems) > 0:
		return field.ErrorList{
			field.Invalid(at, name, fmt.Sprintf("%q is not the name of a resource: %s", name, problems[0])),
		}
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		return field.ErrorList{field.Invalid(at, name,
			fmt.Sprintf("%q is Kubernetes' own; use another domain, such as vendor.com/device", name))}
	}
	return nil
}

// validatePermittedDevices checks what a configuration says of devices of nodes.
func validatePermittedDevices(devices *v1.PermittedHostDevices, path *field.Path) field.ErrorList {
	if devices == nil {
		return nil
	}
	var errs field.ErrorList
	kinds := map[string]string{}
	resource := func(kind, name string, at *field.Path) {
		errs = append(errs, validateResourceName(name, at.Child("resourceName"))...)
		if other := kinds[name]; other != "" && other != kind {
			errs = append(errs, field.Invalid(at.Child("resourceName"), name,
				fmt.Sprintf("%s is a resource of %s, too; give each its own", name, other)))
		}
		kinds[name] = kind
	}
	selector := func(pattern *regexp.Regexp, text, example string, at *field.Path) {
		if !pattern.MatchString(text) {
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("%q is not %s", text, example)))
		}
	}
	for i := range devices.PciHostDevices {
		d, at := &devices.PciHostDevices[i], path.Child("pciHostDevices").Index(i)
		resource("pciHostDevices", d.ResourceName, at)
		selector(pciSelector, d.PCIVendorSelector,
			"VENDOR:DEVICE of a PCI device such as 10DE:1EB8; lspci -nn shows it", at.Child("pciVendorSelector"))
	}
	for i := range devices.MediatedDevices {
		d, at := &devices.MediatedDevices[i], path.Child("mediatedDevices").Index(i)
		resource("mediatedDevices", d.ResourceName, at)
		if strings.TrimSpace(d.MDEVNameSelector) == "" {
			errs = append(errs, field.Required(at.Child("mdevNameSelector"),
				"is not set; it is the name of the type, such as GRID T4-1Q"))
		}
	}
	for i := range devices.USB {
		d, at := &devices.USB[i], path.Child("usb").Index(i)
		resource("usb", d.ResourceName, at)
		if len(d.Selectors) == 0 && !d.ExternalResourceProvider {
			errs = append(errs, field.Required(at.Child("selectors"),
				"is not set; it is the vendor and product of each device of the resource"))
		}
		for n, s := range d.Selectors {
			at := at.Child("selectors").Index(n)
			selector(usbSelector, s.Vendor, "the vendor of a USB device such as 046d; lsusb shows it",
				at.Child("vendor"))
			selector(usbSelector, s.Product, "the product of a USB device such as c52b; lsusb shows it",
				at.Child("product"))
		}
	}
	return errs
}
