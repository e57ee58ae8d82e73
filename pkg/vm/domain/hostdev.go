package domain

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/pci"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

// pciHostdev returns a PCI device of the node that a driver for pass-through holds; libvirt leaves the driver as it is.
func pciHostdev(device pci.Address, alias string) libvirtxml.DomainHostdev {
	return libvirtxml.DomainHostdev{
		Managed: "no",
		SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
			Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: address(device).PCI},
		},
		Alias: &libvirtxml.DomainAlias{Name: alias},
	}
}

// mdevHostdev returns a mediated device of the node, a part of a PCI device.
func mdevHostdev(uuid, alias string) libvirtxml.DomainHostdev {
	return libvirtxml.DomainHostdev{
		SubsysMDev: &libvirtxml.DomainHostdevSubsysMDev{
			Model:  "vfio-pci",
			Source: &libvirtxml.DomainHostdevSubsysMDevSource{Address: &libvirtxml.DomainAddressMDev{UUID: uuid}},
		},
		Alias: &libvirtxml.DomainAlias{Name: alias},
	}
}

// usbHostdev returns a USB device of the node.
func usbHostdev(bus, device uint, alias string) libvirtxml.DomainHostdev {
	return libvirtxml.DomainHostdev{
		Managed: "no",
		SubsysUSB: &libvirtxml.DomainHostdevSubsysUSB{Source: &libvirtxml.DomainHostdevSubsysUSBSource{
			Address: &libvirtxml.DomainAddressUSB{Bus: &bus, Device: &device},
		}},
		Alias: &libvirtxml.DomainAlias{Name: alias},
	}
}

// wanted is one entry of gpus or hostDevices.
type wanted struct {
	path, alias, resource string
	// gpu is set for one of gpus.
	gpu *v1.GPU
}

func wantedDevices(devices *v1.Devices) []wanted {
	var out []wanted
	for i := range devices.GPUs {
		d := &devices.GPUs[i]
		out = append(out,
			wanted{"spec.domain.devices.gpus[" + itoa(i) + "]", aliasPrefix + "gpu-" + d.Name, d.DeviceName, d})
	}
	for i := range devices.HostDevices {
		d := &devices.HostDevices[i]
		out = append(out, wanted{"spec.domain.devices.hostDevices[" + itoa(i) + "]", aliasPrefix + "hostdevice-" +
			d.Name, d.DeviceName, nil})
	}
	return out
}

// hostDevices returns the devices of the node that the guest's pod got, in the order in which the device plugins list
// them.
func hostDevices(devices *v1.Devices, facts Facts) ([]libvirtxml.DomainHostdev, error) {
	list := wantedDevices(devices)
	users := map[string]int{}
	for _, w := range list {
		users[w.resource]++
	}
	var out []libvirtxml.DomainHostdev
	var screens []screen
	taken := map[string]int{}
	for _, w := range list {
		got, err := allotted(w, taken[w.resource], users[w.resource], facts.PluginVariables)
		if err != nil {
			return nil, err
		}
		taken[w.resource]++
		for i := range got {
			if got[i].SubsysMDev != nil && w.gpu != nil {
				screens = append(screens, screen{len(out), w.gpu.VirtualGPUOptions})
			}
			out = append(out, got[i])
		}
	}
	if peripherals.Graphics(devices) {
		showOn(out, screens, devices.Video == nil || devices.Video.Type != "ramfb")
	}
	return out, nil
}

// allotted returns the devices of the n-th of all users of a resource: one each on PCI, and on USB as many as a unit of
// the resource has.
func allotted(w wanted, n, all int, variables map[string]string) ([]libvirtxml.DomainHostdev, error) {
	for _, prefix := range []string{passthrough.PCI, passthrough.MDev, passthrough.USB} {
		name := passthrough.Variable(prefix, w.resource)
		devices := passthrough.Devices(variables[name])
		if len(devices) == 0 {
			continue
		}
		each := 1
		if prefix == passthrough.USB && len(devices)%all == 0 {
			each = len(devices) / all
		}
		if len(devices) < all*each {
			return nil, field(w.path, "the device plugin gave the pod %d devices of resource %s, and %d are needed: "+
				"%s=%q", len(devices), w.resource, all, name, variables[name])
		}
		var out []libvirtxml.DomainHostdev
		for i, text := range devices[n*each : (n+1)*each] {
			alias := w.alias
			if i > 0 {
				alias += "-" + itoa(i)
			}
			device, err := parseHostdev(prefix, text, alias)
			if err != nil {
				return nil, field(w.path, "%s: %w", name, err)
			}
			out = append(out, device)
		}
		return out, nil
	}
	return nil, field(w.path, "the device plugin of resource %s has not said which device the pod got: none of "+
		"the variables %s, %s and %s is set",
		w.resource, passthrough.Variable(passthrough.PCI, w.resource),
		passthrough.Variable(passthrough.MDev, w.resource), passthrough.Variable(passthrough.USB, w.resource))
}

var uuidPattern = regexp.MustCompile(`^[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}$`)

// parseHostdev reads a device as a device plugin names it.
func parseHostdev(prefix, text, alias string) (libvirtxml.DomainHostdev, error) {
	switch prefix {
	case passthrough.PCI:
		device, err := pci.Parse(text)
		return pciHostdev(device, alias), err
	case passthrough.MDev:
		if !uuidPattern.MatchString(text) {
			return libvirtxml.DomainHostdev{}, fmt.Errorf("%q is not the UUID of a mediated device", text)
		}
		return mdevHostdev(text, alias), nil
	}
	first, second, _ := strings.Cut(text, ":")
	bus, err := strconv.ParseUint(first, 10, 16)
	if err == nil {
		var device uint64
		if device, err = strconv.ParseUint(second, 10, 16); err == nil {
			return usbHostdev(uint(bus), uint(device), alias), nil
		}
	}
	return libvirtxml.DomainHostdev{}, fmt.Errorf("%q is not the BUS:DEVICE of a USB device", text)
}

// screen is a virtual GPU, which is also a screen if it is asked to.
type screen struct {
	device  int
	options *v1.VGPUOptions
}

// showOn makes virtual GPUs screens: those that say so, and the first if none says anything. framebuffer says whether
// the latter may also be one before the guest has a driver for it; QEMU has one such framebuffer at most.
func showOn(devices []libvirtxml.DomainHostdev, screens []screen, framebuffer bool) {
	said := false
	for _, s := range screens {
		if s.options == nil || s.options.Display == nil {
			continue
		}
		said = true
		if display := s.options.Display; enabled(display.Enabled, true) {
			devices[s.device].SubsysMDev.Display = "on"
			if display.RamFB == nil || enabled(display.RamFB.Enabled, true) {
				devices[s.device].SubsysMDev.RamFB = "on"
			}
		}
	}
	if !said && len(screens) > 0 {
		first := devices[screens[0].device].SubsysMDev
		first.Display = "on"
		if framebuffer {
			first.RamFB = "on"
		}
	}
}
