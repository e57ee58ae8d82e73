package foreign

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// The elements and numbers are those of DMTF's DSP0243 (OVF 1 and 2), with the namespaces vmw of VMware and vbox of
// VirtualBox, and oVirt's of version 0.9, which virt-v2v writes.

// envelope is an OVF that is read.
type envelope struct {
	root, system *node
	// configuration is the deployment option that is taken; empty for none.
	configuration string
	// files are those of the References, and disks those of the DiskSection, by their identifiers.
	files map[string]*node
	disks map[string]*node
	// kinds are the kinds of controllers, by their types, in the order in which the OVF has them.
	kinds map[string]uint32
	out   *Machine
}

// readOVF returns the machine that an OVF describes.
func readOVF(root *node) (*Machine, error) {
	e := &envelope{
		root: root, files: map[string]*node{}, disks: map[string]*node{}, kinds: map[string]uint32{}, out: &Machine{},
	}
	if root.name != "Envelope" {
		return nil, fmt.Errorf("it is no OVF: its root is %q", root.name)
	}
	if err := e.findSystem(); err != nil {
		return nil, err
	}
	if err := e.references(); err != nil {
		return nil, err
	}
	e.out.Name = e.system.value("Name")
	if id := e.system.attrs["id"]; e.out.Name == "" {
		e.out.Name = id
	}
	e.options()
	hardware := sectionsOf(e.system, "VirtualHardwareSection")
	if len(hardware) != 1 {
		return nil, fmt.Errorf("the OVF has %d VirtualHardwareSections, where one is to be", len(hardware))
	}
	e.firmware(hardware[0])
	if err := e.hardware(hardware[0]); err != nil {
		return nil, err
	}
	e.virtualbox()
	e.sections()
	return e.out, e.out.check()
}

// sectionsOf returns the sections of a kind: oVirt's are called Section, and have the kind as their type.
func sectionsOf(parent *node, kind string) []*node {
	var out []*node
	for _, child := range parent.children {
		if kindOf(child) == kind {
			out = append(out, child)
		}
	}
	return out
}

func kindOf(section *node) string {
	if section.name != "Section" && section.name != "Content" {
		return section.name
	}
	_, kind, cut := strings.Cut(section.attrs["type"], ":")
	if !cut {
		kind = section.attrs["type"]
	}
	return strings.TrimSuffix(kind, "_Type")
}

func (e *envelope) findSystem() error {
	systems := sectionsOf(e.root, "VirtualSystem")
	switch {
	case len(sectionsOf(e.root, "VirtualSystemCollection")) > 0 || len(systems) > 1:
		return errors.New("the OVF has several VMs (a VirtualSystemCollection), and one is imported at a time: " +
			"export them one by one")
	case len(systems) == 0:
		return errors.New("the OVF has no VirtualSystem")
	}
	e.system = systems[0]
	return nil
}

// references reads what files and disks there are.
func (e *envelope) references() error {
	for _, section := range sectionsOf(e.root, "References") {
		for _, file := range section.all("File") {
			if err := checkFile(file); err != nil {
				return err
			}
			for _, key := range []string{file.attrs["href"], file.attrs["id"]} {
				if key != "" {
					e.files[key] = file
				}
			}
		}
	}
	for _, section := range sectionsOf(e.root, "DiskSection") {
		for _, disk := range section.all("Disk") {
			id := disk.attrs["diskId"]
			switch {
			case id == "":
				return errors.New("a Disk of the OVF has no diskId")
			case e.disks[id] != nil:
				return fmt.Errorf("disk %s is in the OVF twice", id)
			case disk.attrs["parentRef"] != "":
				return fmt.Errorf("disk %s is a difference to another (parentRef %s), which is not taken: export the "+
					"VM without snapshots", id, disk.attrs["parentRef"])
			}
			e.disks[id] = disk
			if ref := disk.attrs["fileRef"]; ref != "" && e.disks[ref] == nil {
				e.disks[ref] = disk // which is what oVirt's items name
			}
		}
	}
	return nil
}

// checkFile refuses a file that is not one of the archive, whole.
func checkFile(file *node) error {
	href := file.attrs["href"]
	switch compression := file.attrs["compression"]; {
	case href == "":
		return fmt.Errorf("file %s of the OVF has no href", file.attrs["id"])
	case file.attrs["chunkSize"] != "":
		return fmt.Errorf("file %s is in chunks, which are not taken: export the VM without them", href)
	case compression != "" && compression != "identity" && compression != "gzip":
		return fmt.Errorf("file %s has the compression %q, which is not taken", href, compression)
	}
	return checkPath(href)
}

// options chooses one of the deployment options.
func (e *envelope) options() {
	var all []string
	for _, section := range sectionsOf(e.root, "DeploymentOptionSection") {
		for i, option := range section.all("Configuration") {
			id := option.attrs["id"]
			all = append(all, id)
			if i == 0 || truth(option.attrs["default"]) {
				e.configuration = id
			}
		}
	}
	if len(all) > 1 {
		e.out.absent("deployment options %s: the VM is made by %s", strings.Join(all, ", "), e.configuration)
	}
}

func truth(text string) bool { return strings.EqualFold(text, "true") || text == "1" }

// items returns the items of the hardware that count, in their order.
func (e *envelope) items(hardware *node) []*node {
	var out []*node
	for _, item := range hardware.children {
		switch item.name {
		case "Item", "StorageItem", "EthernetPortItem":
		default:
			continue
		}
		of := strings.Fields(item.attrs["configuration"])
		if bound := item.attrs["bound"]; bound == "min" || bound == "max" ||
			len(of) > 0 && !slices.Contains(of, e.configuration) {
			continue
		}
		id := idOf(item)
		at := slices.IndexFunc(out, func(other *node) bool { return id != "" && idOf(other) == id })
		switch {
		case at < 0:
			out = append(out, item)
		case len(of) > 0:
			out[at] = item // a configuration's goes before what is for all
		}
	}
	return out
}

func idOf(item *node) string { return item.value("InstanceID", "InstanceId") }

// firmware reads VMware's and oVirt's words for it.
func (e *envelope) firmware(hardware *node) {
	for _, config := range hardware.all("Config") {
		switch key, value := config.attrs["key"], config.attrs["value"]; key {
		case "firmware":
			e.out.EFI = strings.EqualFold(value, "efi")
		case "bootOptions.efiSecureBootEnabled", "uefi.secureBoot.enabled":
			e.out.SecureBoot = truth(value)
		}
	}
	switch e.system.value("BiosType") {
	case "2":
		e.out.EFI = true
	case "3":
		e.out.EFI, e.out.SecureBoot = true, true
	}
	e.out.SecureBoot = e.out.SecureBoot && e.out.EFI
}

// virtualbox reads what VirtualBox says in a section of its own: firmware, UUID and MAC addresses.
func (e *envelope) virtualbox() {
	machine := e.system.child("Machine")
	if machine.name == "" {
		return
	}
	e.out.UUID = uuidOf(machine.attrs["uuid"])
	hardware := machine.child("Hardware")
	e.out.EFI = e.out.EFI || strings.HasPrefix(strings.ToUpper(hardware.child("Firmware").attrs["type"]), "EFI")
	if tpm := hardware.child("TrustedPlatformModule").attrs["type"]; tpm != "" && tpm != "None" {
		e.out.TPM = true
	}
	at := 0
	for _, adapter := range hardware.child("Network").all("Adapter") {
		if !truth(adapter.attrs["enabled"]) {
			continue
		}
		if at < len(e.out.NICs) && e.out.NICs[at].MAC == "" {
			e.out.NICs[at].MAC = macOf(adapter.attrs["MACAddress"])
		}
		at++
	}
	if shared := hardware.child("SharedFolders").all("SharedFolder"); len(shared) > 0 {
		e.out.absent("%d shared folders", len(shared))
	}
	if machine.has("Snapshot") {
		e.out.absent("its snapshots: the disks are as they were last")
	}
}

// known are sections that are read, or that say nothing of the hardware.
var known = []string{
	"References", "DiskSection", "NetworkSection", "DeploymentOptionSection", "VirtualSystem", "OperatingSystemSection",
	"VirtualHardwareSection", "AnnotationSection", "Machine", "Strings", "Info", "Name",
}

// sections says which sections are passed over.
func (e *envelope) sections() {
	for _, parent := range []*node{e.root, e.system} {
		for _, section := range parent.children {
			switch kind := kindOf(section); {
			case kind == "ProductSection":
				e.product(section)
			case kind == "EulaSection":
				e.out.absent("the appliance's licence (EulaSection), which nobody is asked to agree to")
			case !strings.HasSuffix(kind, "Section") || slices.Contains(known, kind):
			default:
				e.out.absent("section %s of the OVF", kind)
			}
		}
	}
}

// product says which properties the guest does not get.
func (e *envelope) product(section *node) {
	var keys []string
	for _, property := range section.all("Property") {
		keys = append(keys, property.attrs["key"])
	}
	if len(keys) > 0 {
		e.out.absent("OVF properties %s: the guest gets no OVF environment", strings.Join(keys, ", "))
	}
}

// diskOf reads a disk of the DiskSection.
func (e *envelope) diskOf(entry *node, disk *Disk) error {
	id := entry.attrs["diskId"]
	unit, err := unitOf(entry.attrs["capacityAllocationUnits"])
	if err != nil {
		return fmt.Errorf("disk %s: capacityAllocationUnits: %w", id, err)
	}
	capacity := entry.attrs["capacity"]
	if capacity != "" && !strings.HasPrefix(capacity, "$") {
		var ok bool
		if disk.Capacity, ok = times(capacity, unit); !ok {
			return fmt.Errorf("disk %s: capacity: %q is no size", id, capacity)
		}
	}
	disk.Format = formatOf(entry)
	if truth(entry.attrs["boot"]) {
		disk.Boot = 1
	}
	ref := entry.attrs["fileRef"]
	if ref == "" {
		return nil
	}
	file := e.files[ref]
	if file == nil {
		return fmt.Errorf("disk %s is in file %s, which the OVF does not list", id, ref)
	}
	disk.File = file.attrs["href"]
	return nil
}

// formatOf returns the format that oVirt says a disk has. Of others' disks the header says it.
func formatOf(entry *node) imageformat.Format {
	switch entry.attrs["volume-format"] {
	case "RAW":
		return imageformat.Raw
	case "COW":
		return imageformat.QCOW2
	}
	return ""
}

// unitOf reads a unit of bytes, as DSP0004 writes it, or in one of the words of old OVFs.
func unitOf(text string) (int64, error) {
	const kilobyte = 1 << 10
	clean := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	switch clean {
	case "", "byte", "bytes":
		return 1, nil
	case "kb", "kilobytes":
		return kilobyte, nil
	case "mb", "megabytes":
		return kilobyte * kilobyte, nil
	case "gb", "gigabytes":
		return kilobyte * kilobyte * kilobyte, nil
	}
	base, exponent, cut := strings.Cut(strings.TrimPrefix(clean, "byte*"), "^")
	power, err := strconv.ParseUint(exponent, 10, 8)
	of := map[string]int64{"2": 2, "10": 10}[base]
	if !cut || err != nil || of == 0 || of == 2 && power > 50 || of == 10 && power > 15 {
		return 0, fmt.Errorf("%q is no unit of bytes that is known", text)
	}
	unit := int64(1)
	for range power {
		unit *= of
	}
	return unit, nil
}
