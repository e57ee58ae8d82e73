package foreign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ovf"
)

// The types of resources, as CIM_ResourceAllocationSettingData numbers them. The last is oVirt's.
const (
	typeOther, typeCPU, typeMemory, typeIDE, typeSCSI      = "1", "3", "4", "5", "6"
	typeNIC, typeFloppy, typeCD, typeDVD, typeDisk         = "10", "14", "15", "16", "17"
	typeStorage, typeSerial, typeParallel, typeUSB         = "20", "21", "22", "23"
	typeGraphics, typeSound, typeNothing, typeOvirtDisplay = "24", "35", "0", "32768"
)

// hardware reads the items of the virtual hardware.
func (e *envelope) hardware(section *node) error {
	items := e.items(section)
	controllers := map[string]*node{}
	for _, item := range items {
		if !isController(item) {
			continue
		}
		controllers[idOf(item)] = item
		if kind := item.value("ResourceType"); e.kinds[kind] == 0 {
			e.kinds[kind] = uint32(len(e.kinds) + 1)
		}
	}
	var drives []drive
	for _, item := range items {
		kind := item.value("ResourceType")
		switch kind {
		case typeDisk, typeCD, typeDVD:
			d, err := e.drive(item, kind != typeDisk, controllers)
			if err != nil {
				return err
			}
			drives = append(drives, d)
		default:
			if err := e.item(kind, item); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(drives, drive.compare)
	for i := range drives {
		e.out.Disks = append(e.out.Disks, drives[i].Disk)
	}
	e.out.name()
	return nil
}

func isController(item *node) bool {
	switch item.value("ResourceType") {
	case typeIDE, typeSCSI:
		return true
	case typeStorage:
		return item.value("Type") != "video" // which old oVirt numbers so
	}
	return false
}

// item reads an item that is no disk.
func (e *envelope) item(kind string, item *node) error {
	subtype := strings.ToLower(item.value("ResourceSubType"))
	switch kind {
	case typeCPU:
		e.cpu(item)
	case typeMemory:
		unit, err := unitOf(cmp.Or(item.value("AllocationUnits"), "MegaBytes"))
		if err != nil {
			return fmt.Errorf("memory: AllocationUnits: %w", err)
		}
		size, ok := times(item.value("VirtualQuantity"), unit)
		if !ok {
			return fmt.Errorf("memory: VirtualQuantity: %q is no size", item.value("VirtualQuantity"))
		}
		e.out.Memory = size
	case typeNIC:
		e.nic(item, subtype)
	case typeIDE, typeSCSI, typeStorage, typeSerial, typeGraphics, typeOvirtDisplay:
	case typeSound:
		e.sound(item, subtype)
	case typeOther, typeNothing:
		e.other(item, subtype)
	case typeFloppy, typeParallel, typeUSB:
		if item.value("UsbPolicy") != "Disabled" {
			e.out.absent("%s", label(item))
		}
	default:
		e.out.absent("%s (resource type %s)", label(item), kind)
	}
	return nil
}

// label returns what an item is called.
func label(item *node) string {
	name := cmp.Or(item.value("ElementName", "Caption"), "an item without a name")
	if subtype := item.value("ResourceSubType"); subtype != "" && !strings.Contains(name, subtype) {
		name += " (" + subtype + ")"
	}
	return name
}

func (e *envelope) cpu(item *node) {
	if sockets := number(item.value("num_of_sockets")); sockets > 0 { // oVirt's
		e.out.CPU = CPU{
			Sockets: sockets, Cores: max(number(item.value("cpu_per_socket")), 1),
			Threads: max(number(item.value("threads_per_cpu")), 1),
		}
		return
	}
	all, cores := number(item.value("VirtualQuantity")), number(item.value("CoresPerSocket"))
	if cores == 0 || all%cores != 0 {
		cores = 1
	}
	if all > 0 {
		e.out.CPU = CPU{Sockets: all / cores, Cores: cores, Threads: 1}
	}
}

// models are the network cards that there are here, by what hypervisors call them.
var models = map[string]string{
	"e1000": "e1000", "82540em": "e1000", "82543gc": "e1000", "82545em": "e1000", "2": "e1000", "e1000e": "e1000e",
	"82574l": "e1000e", "pcnet32": "pcnet", "pcnet": "pcnet", "am79c970a": "pcnet", "am79c973": "pcnet",
	"virtio": "virtio", "virtio-net": "virtio", "virtionet": "virtio", "3": "virtio", "rtl8139": "rtl8139",
	"1": "rtl8139", "ne2k_pci": "ne2k_pci", "igb": "igb",
	"virtio-net-pci": "virtio", "virtio-transitional": "virtio", "virtio-non-transitional": "virtio",
}

// otherModel is the one for a guest whose own there is not: every system has a driver for it.
const otherModel = "e1000e"

// as gives an interface the model that a file names.
func (n *NIC) as(model string) {
	var known bool
	if n.Model, known = models[strings.ToLower(model)]; !known {
		n.Model, n.Was = otherModel, model
	}
}

func (e *envelope) nic(item *node, subtype string) {
	nic := NIC{Network: item.value("Connection"), MAC: macOf(item.value("Address", "MACAddress"))}
	// VMware may name several that would do.
	model, _, _ := strings.Cut(subtype, " ")
	nic.as(model)
	if here := item.value(ovf.ElementModel); models[here] != "" { // our own word for it
		nic.as(here)
		nic.Was = ""
	}
	e.out.NICs = append(e.out.NICs, nic)
}

func (e *envelope) sound(item *node, subtype string) {
	switch {
	case strings.Contains(subtype, "hda") || strings.Contains(subtype, "ich6") || strings.Contains(subtype, "ich9"):
		e.out.Sound = "ich9"
	case strings.Contains(subtype, "ac97"):
		e.out.Sound = "ac97"
	default:
		e.out.absent("%s", label(item))
	}
}

// other reads VMware's devices of no type, and oVirt's.
func (e *envelope) other(item *node, subtype string) {
	device := strings.ToLower(item.value("Device"))
	switch kind := item.value("Type"); {
	case kind == "rng":
		e.out.RNG = true
	case kind == "balloon" || kind == "video" || kind == "graphics" || kind == "console" || kind == "channel":
	case kind == "sound":
		e.sound(item, device)
	case strings.HasPrefix(subtype, "vmware.soundcard.hd"):
		e.out.Sound = "ich9"
	case subtype == "vmware.vtpm":
		e.out.TPM = true
	default:
		e.out.absent("%s", label(item))
	}
}

// drive is a disk at its place.
type drive struct {
	Disk
	// order puts disks before CD drives, and then goes by the kind of the controller, as the OVF lists them, its
	// number, and the drive's address at it.
	order [4]uint32
}

func (d drive) compare(other drive) int { return slices.Compare(d.order[:], other.order[:]) }

// buses are those that a disk may have here.
var buses = []v1.DiskBus{v1.DiskBusVirtio, v1.DiskBusSCSI, v1.DiskBusSATA, v1.DiskBusUSB}

// drive reads a disk or a CD drive.
func (e *envelope) drive(item *node, cd bool, controllers map[string]*node) (drive, error) {
	d := drive{Disk: Disk{Label: label(item), CDROM: cd, Bus: v1.DiskBusSATA}}
	resource := item.value("HostResource")
	id := strings.TrimPrefix(strings.TrimPrefix(resource, "ovf:"), "/")
	var entry *node
	switch {
	case strings.HasPrefix(id, "disk/"):
		if entry = e.disks[id[len("disk/"):]]; entry == nil {
			return d, fmt.Errorf("%s: the OVF has no disk %s", d.Label, id)
		}
	case strings.HasPrefix(id, "file/"):
		file := e.files[id[len("file/"):]]
		if file == nil {
			return d, fmt.Errorf("%s: the OVF has no file %s", d.Label, id)
		}
		d.File = file.attrs["href"]
	case e.disks[resource] != nil:
		entry = e.disks[resource]
	case resource != "" && cd:
		e.out.absent("what is in %s (%s)", d.Label, resource)
	default:
		if !cd {
			return d, fmt.Errorf("%s: %q names no disk of the OVF", d.Label, resource)
		}
	}
	if entry != nil {
		if err := e.diskOf(entry, &d.Disk); err != nil {
			return d, err
		}
	}
	e.bus(&d, item, entry, controllers)
	if here := v1.DiskBus(item.value(ovf.ElementBus)); !cd && slices.Contains(buses, here) { // our own word for it
		d.Bus, d.Was = here, ""
	}
	return d, nil
}

// bus finds out to what a drive is attached.
func (e *envelope) bus(d *drive, item, entry *node, controllers map[string]*node) {
	if d.CDROM {
		d.order[0] = 1
	}
	d.order[3] = number(item.value("AddressOnParent"))
	if entry != nil && entry.attrs["disk-interface"] != "" {
		d.on(entry.attrs["disk-interface"])
		return
	}
	controller := controllers[item.value("Parent")]
	if controller == nil {
		return
	}
	kind := controller.value("ResourceType")
	d.order[1], d.order[2] = e.kinds[kind], number(controller.value("Address"))
	if kind == typeIDE {
		d.on("IDE")
		return
	}
	d.on(cmp.Or(controller.value("ResourceSubType"), "SCSI"))
}

// on gives a disk the bus for a controller: virtio where the guest has had it, and else SATA, for which every guest has
// a driver.
func (d *Disk) on(controller string) {
	name := strings.ToLower(controller)
	switch {
	case d.CDROM:
		d.Bus = v1.DiskBusSATA
	case strings.Contains(name, "virtioscsi") || strings.Contains(name, "virtio_scsi") ||
		strings.Contains(name, "virtio-scsi"):
		d.Bus = v1.DiskBusSCSI
	case strings.HasPrefix(name, "virtio"):
		d.Bus = v1.DiskBusVirtio
	case name == "usb":
		d.Bus = v1.DiskBusUSB
	default:
		d.Bus = v1.DiskBusSATA
		if !strings.Contains(name, "sata") && !strings.Contains(name, "ahci") {
			d.Was = controller
		}
	}
}
