// Package hostdevices offers the devices of a node that the KubeVirt resource lets guests have (permittedHostDevices):
// it finds them in sysfs, and runs a device plugin for each resource with a device.
//
//	sysfs ─► Find ─► Found.Offered(permitted) ─► Offers ─► a deviceplugin.Plugin each
//
// Nothing runs and nothing is read while nothing is permitted.
package hostdevices

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// pciDevice is a device on PCI that a driver for pass-through holds.
type pciDevice struct {
	// address is as sysfs has it: 0000:81:00.0; id is VENDOR:DEVICE, lower case.
	address, id string
	// group is the IOMMU group, in which devices are passed through together; numa is -1 for none.
	group string
	numa  int
}

// mdevDevice is a part of a device that its driver has made.
type mdevDevice struct {
	uuid, kind string
	group      string
	numa       int
}

// usbDevice is a device on USB.
type usbDevice struct {
	// port is the USB port that it is plugged into: 1-4.2.
	port string
	// vendor and product are numbers, bus and device the kernel's, node is below /dev.
	vendor, product uint64
	bus, device     uint64
	node            string
}

// Found are a node's devices that could be passed through, in a fixed order.
type Found struct {
	pci  []pciDevice
	mdev []mdevDevice
	usb  []usbDevice
}

// Find reads sysfs. A bus that the node does not have is none of its devices.
func Find(sys fs.FS) (Found, error) {
	var found Found
	err := errors.Join(
		each(sys, "bus/pci/devices", func(dir, name string) error {
			device, ok, err := readPCI(sys, dir, name)
			if ok {
				found.pci = append(found.pci, device)
			}
			return err
		}),
		each(sys, "bus/mdev/devices", func(dir, name string) error {
			device, err := readMDev(sys, dir, name)
			if err == nil {
				found.mdev = append(found.mdev, device)
			}
			return err
		}),
		each(sys, "bus/usb/devices", func(dir, name string) error {
			device, ok, err := readUSB(sys, dir, name)
			if ok {
				found.usb = append(found.usb, device)
			}
			return err
		}),
	)
	return found, err
}

// each calls read for each entry of a directory, by name. A device that has gone meanwhile is none.
func each(sys fs.FS, dir string, read func(dir, name string) error) error {
	entries, err := fs.ReadDir(sys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var wrong error
	for _, entry := range entries {
		if err := read(path.Join(dir, entry.Name()), entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			wrong = errors.Join(wrong, fmt.Errorf("device %s: %w", entry.Name(), err))
		}
	}
	return wrong
}

// uevent reads what the kernel says of a device: KEY=VALUE lines.
func uevent(sys fs.FS, dir string) (map[string]string, error) {
	text, err := fs.ReadFile(sys, path.Join(dir, "uevent"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[key] = value
		}
	}
	return out, nil
}

// readPCI reads a device; ok is false for one that no driver for pass-through holds.
func readPCI(sys fs.FS, dir, name string) (device pciDevice, ok bool, err error) {
	said, err := uevent(sys, dir)
	if err != nil {
		return device, false, err
	}
	// Some vendors have variants of the driver: mlx5_vfio_pci.
	if !strings.HasSuffix(strings.ReplaceAll(said["DRIVER"], "-", "_"), "vfio_pci") {
		return device, false, nil
	}
	group, err := fs.ReadLink(sys, path.Join(dir, "iommu_group"))
	if err != nil {
		return device, false, fmt.Errorf("has no IOMMU group: %w", err)
	}
	numa, err := numaNode(sys, dir)
	return pciDevice{address: name, id: strings.ToLower(said["PCI_ID"]), group: path.Base(group), numa: numa},
		err == nil, err
}

func readMDev(sys fs.FS, dir, name string) (mdevDevice, error) {
	device := mdevDevice{uuid: name, numa: -1}
	kind, err := fs.ReadFile(sys, path.Join(dir, "mdev_type/name"))
	device.kind = strings.TrimSpace(string(kind))
	if errors.Is(err, fs.ErrNotExist) {
		device.kind, err = fs.ReadLink(sys, path.Join(dir, "mdev_type"))
		device.kind = path.Base(device.kind)
	}
	if err != nil {
		return device, err
	}
	group, err := fs.ReadLink(sys, path.Join(dir, "iommu_group"))
	if err != nil {
		return device, err
	}
	device.group = path.Base(group)
	// The link leads to the device in its parent's directory.
	if target, err := fs.ReadLink(sys, dir); err == nil {
		if device.numa, err = numaNode(sys, path.Join("bus/pci/devices", path.Base(path.Dir(target)))); err != nil {
			return device, err
		}
	}
	return device, nil
}

// numaNode returns the NUMA node of a device, -1 where the kernel names none.
func numaNode(sys fs.FS, dir string) (int, error) {
	text, err := fs.ReadFile(sys, path.Join(dir, "numa_node"))
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// readUSB reads a device; ok is false for what is not one: an interface of a device, or a bus.
func readUSB(sys fs.FS, dir, name string) (device usbDevice, ok bool, err error) {
	if strings.HasPrefix(name, "usb") || strings.Contains(name, ":") {
		return device, false, nil
	}
	said, err := uevent(sys, dir)
	if err != nil || said["DEVNAME"] == "" {
		return device, false, err
	}
	device = usbDevice{port: name, node: said["DEVNAME"]}
	product := strings.Split(said["PRODUCT"], "/")
	if len(product) != 3 || !fs.ValidPath(device.node) {
		return device, false, nil
	}
	for _, number := range []struct {
		into *uint64
		text string
		base int
	}{
		{&device.vendor, product[0], 16},
		{&device.product, product[1], 16},
		{&device.bus, said["BUSNUM"], 10},
		{&device.device, said["DEVNUM"], 10},
	} {
		if *number.into, err = strconv.ParseUint(number.text, number.base, 32); err != nil {
			return device, false, err
		}
	}
	return device, true, nil
}
