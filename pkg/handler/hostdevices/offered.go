package hostdevices

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// Offered has the devices of a resource.
type Offered struct {
	// Variable is the variable that names what a container got.
	Variable string
	Units    []deviceplugin.Unit
}

// vfio is the device by which all others of its kind are used.
const vfio = "/dev/vfio/vfio"

// Offered returns the resources that virt-handler is to offer, with what the node has of each. dev is the node's /dev:
// a device without its node is not healthy.
func (f Found) Offered(permitted *v1.PermittedHostDevices, dev fs.FS) map[string]Offered {
	out := map[string]Offered{}
	if permitted == nil {
		return out
	}
	add := func(prefix, resource string, unit deviceplugin.Unit) {
		offered := out[resource]
		offered.Variable = passthrough.Variable(prefix, resource)
		for _, have := range offered.Units {
			if have.ID == unit.ID {
				return // goes with the one that has it, being in its IOMMU group
			}
		}
		unit.Healthy = true
		for _, node := range unit.Nodes {
			if _, err := fs.Stat(dev, strings.TrimPrefix(node, "/dev/")); err != nil {
				unit.Healthy = false
			}
		}
		offered.Units = append(offered.Units, unit)
		out[resource] = offered
	}
	for i := range permitted.PciHostDevices {
		p := &permitted.PciHostDevices[i]
		for _, d := range f.pci {
			if !p.ExternalResourceProvider && d.id == strings.ToLower(p.PCIVendorSelector) {
				add(passthrough.PCI, p.ResourceName, deviceplugin.Unit{
					ID: d.group, NUMA: d.numa,
					Nodes: []string{vfio, "/dev/vfio/" + d.group}, Names: []string{d.address},
				})
			}
		}
	}
	for i := range permitted.MediatedDevices {
		p := &permitted.MediatedDevices[i]
		for _, d := range f.mdev {
			if !p.ExternalResourceProvider && underscored(d.kind) == underscored(p.MDEVNameSelector) {
				add(passthrough.MDev, p.ResourceName, deviceplugin.Unit{
					ID: d.group, NUMA: d.numa,
					Nodes: []string{vfio, "/dev/vfio/" + d.group}, Names: []string{d.uuid},
				})
			}
		}
	}
	taken := map[string]bool{}
	for i := range permitted.USB {
		p := &permitted.USB[i]
		for !p.ExternalResourceProvider {
			unit, ok := f.set(p.Selectors, taken)
			if !ok {
				break
			}
			add(passthrough.USB, p.ResourceName, unit)
		}
	}
	return out
}

// underscored returns the form in which names of types of mediated devices are compared; KubeVirt's.
func underscored(name string) string { return strings.ReplaceAll(strings.TrimSpace(name), " ", "_") }

// set takes a device for each selector; ok is false when one is missing.
func (f Found) set(selectors []v1.USBSelector, taken map[string]bool) (unit deviceplugin.Unit, ok bool) {
	unit.NUMA = -1
	var ports []string
	for _, s := range selectors {
		vendor, err := strconv.ParseUint(s.Vendor, 16, 32)
		product, err2 := strconv.ParseUint(s.Product, 16, 32)
		if err != nil || err2 != nil {
			return unit, false // admission reports it
		}
		found := false
		for _, d := range f.usb {
			if !found && !taken[d.port] && d.vendor == vendor && d.product == product {
				found, taken[d.port] = true, true
				ports = append(ports, d.port)
				unit.Nodes = append(unit.Nodes, "/dev/"+d.node)
				unit.Names = append(unit.Names, fmt.Sprintf("%d:%d", d.bus, d.device))
			}
		}
		if !found {
			for _, port := range ports {
				delete(taken, port)
			}
			return unit, false
		}
	}
	unit.ID = strings.Join(ports, "+")
	return unit, len(ports) > 0
}
