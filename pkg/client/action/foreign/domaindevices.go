package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

var (
	cpuModel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	serial   = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,20}$`)
)

// uuidOf returns a UUID as a VM has it; empty for what is none.
func uuidOf(text string) string {
	parsed, err := uuid.Parse(strings.Trim(text, "{}"))
	if err != nil {
		return ""
	}
	return parsed.String()
}

// domainDisk reads a disk, a CD drive or a floppy drive. scsi is the controller of those on the bus of that name.
func (m *Machine) domainDisk(device *node, scsi string) error {
	target := device.child("target")
	name := cmp.Or(target.attrs["dev"], "without a name")
	d := Disk{Label: "disk " + name}
	switch kind := cmp.Or(device.attrs["device"], "disk"); kind {
	case "disk":
	case "cdrom":
		d.CDROM = true
	default:
		m.absent("%s %s", kind, name)
		return nil
	}
	if err := d.domainSource(device); err != nil {
		return fmt.Errorf("%s: %w", d.Label, err)
	}
	bus := cmp.Or(target.attrs["bus"], busOf(name))
	if bus == "scsi" {
		bus = scsi
	}
	d.on(bus)
	if text := device.value("serial"); serial.MatchString(text) {
		d.Serial = text
	} else if text != "" {
		m.absent("the serial of %s, %q", d.Label, text)
	}
	if device.has("boot") {
		d.Boot = uint(number(device.child("boot").attrs["order"]))
	}
	for _, part := range []string{"shareable", "transient", "encryption", "iotune", "throttlefilters", "geometry"} {
		if device.has(part) {
			m.absent("%s of %s", part, d.Label)
		}
	}
	if device.has("readonly") && !d.CDROM {
		m.absent("readonly of %s: the guest can write to its copy", d.Label)
	}
	m.Disks = append(m.Disks, d)
	return nil
}

// busOf returns the bus that the name of a device stands for.
func busOf(device string) string {
	for prefix, bus := range map[string]string{"vd": "virtio", "sd": "scsi", "hd": "ide", "xvd": "xen"} {
		if strings.HasPrefix(device, prefix) {
			return bus
		}
	}
	return ""
}

// domainSource reads where a disk is. Only a file of this machine is taken.
func (d *Disk) domainSource(device *node) error {
	source := device.child("source")
	kind := cmp.Or(device.attrs["type"], "file")
	switch {
	case source.name == "" && d.CDROM:
		return nil
	case kind != "file":
		return fmt.Errorf("it is of type %s, and only files are taken: copy it into a file, name it in the XML, and "+
			"set type='file'", kind)
	case source.attrs["file"] == "" && d.CDROM:
		return nil
	case source.attrs["file"] == "":
		return errors.New("it names no file")
	case source.has("encryption") || device.has("encryption"):
		return errors.New("it is encrypted, which is not taken: decrypt it first")
	}
	d.File = source.attrs["file"]
	switch format := cmp.Or(device.child("driver").attrs["type"], "raw"); format {
	case "raw":
		d.Format = imageformat.Raw
	case "qcow2":
		d.Format = imageformat.QCOW2
	case "vmdk":
		d.Format = imageformat.VMDK
	case "vpc":
		d.Format = imageformat.VHD
	default:
		return fmt.Errorf("its format is %s, which is not taken: convert it first, with qemu-img convert -O qcow2",
			format)
	}
	return nil
}

// domainNIC reads a network interface.
func (m *Machine) domainNIC(device *node) {
	kind := device.attrs["type"]
	n := NIC{MAC: macOf(device.child("mac").attrs["address"])}
	source := device.child("source").attrs
	n.Network = cmp.Or(source["network"], source["bridge"], source["dev"], kind)
	switch kind {
	case "hostdev", "vdpa", "vhostuser":
		m.absent("interface %s (%s)", kind, cmp.Or(n.MAC, "no MAC address"))
		return
	}
	n.as(cmp.Or(device.child("model").attrs["type"], "rtl8139"))
	if device.has("boot") {
		n.Boot = uint(number(device.child("boot").attrs["order"]))
	}
	for _, part := range []string{"bandwidth", "vlan", "filterref", "mtu", "portgroup", "port"} {
		if device.has(part) {
			m.absent("%s of the interface in %s", part, n.Network)
		}
	}
	m.NICs = append(m.NICs, n)
}
