package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The elements and attributes are those of libvirt's domain XML, https://libvirt.org/formatdomain.html. It is read as
// a tree, so that whatever is not known here can be named.

// readDomain returns the machine that a domain describes.
func readDomain(root *node) (*Machine, error) {
	m := &Machine{Name: root.value("name"), UUID: uuidOf(root.value("uuid"))}
	if root.name != "domain" {
		return nil, fmt.Errorf("it is no libvirt domain: its root is %q", root.name)
	}
	for _, part := range root.children {
		if err := m.domainPart(part); err != nil {
			return nil, err
		}
	}
	return m, m.check()
}

// domainPart reads an element of a domain.
func (m *Machine) domainPart(part *node) error {
	switch part.name {
	case "name", "uuid", "title", "description", "metadata", "currentMemory", "resource", "seclabel", "pm", "genid",
		"on_poweroff", "on_reboot", "on_crash", "on_lockfailure": // of the host or the hypervisor, or of no effect
	case "memory":
		return m.domainMemory(part)
	case "vcpu":
		m.domainCount(part)
	case "cpu":
		m.domainCPU(part)
	case "os":
		return m.domainOS(part)
	case "features":
		m.domainFeatures(part)
	case "clock":
		m.domainClock(part)
	case "devices":
		return m.domainDevices(part)
	default:
		m.absent("%s", part.name)
	}
	return nil
}

// domainMemory reads the memory, which is in KiB unless it says otherwise.
func (m *Machine) domainMemory(part *node) error {
	units := map[string]int64{
		"b": 1, "bytes": 1, "kb": 1e3, "k": 1 << 10, "kib": 1 << 10, "mb": 1e6, "m": 1 << 20, "mib": 1 << 20, "gb": 1e9,
		"g": 1 << 30, "gib": 1 << 30, "tb": 1e12, "t": 1 << 40, "tib": 1 << 40,
	}
	unit := cmp.Or(part.attrs["unit"], "KiB")
	size, ok := times(part.text, units[strings.ToLower(unit)])
	if !ok {
		return fmt.Errorf("memory: %q of %q is no size", part.text, unit)
	}
	m.Memory = size
	return nil
}

// domainCount reads how many vCPUs there are, which a topology that comes later arranges.
func (m *Machine) domainCount(part *node) {
	if all := number(part.text); m.CPU.Sockets == 0 && all > 0 {
		m.CPU.Sockets, m.CPU.Cores, m.CPU.Threads = all, 1, 1
	}
	if part.attrs["cpuset"] != "" {
		m.absent("vcpu cpuset: the guest runs on any processor of its node")
	}
	if now := part.attrs["current"]; now != "" && now != part.text {
		m.absent("vcpu current=%s: the guest has all %s from the start", now, part.text)
	}
}

func (m *Machine) domainCPU(part *node) {
	if topology := part.child("topology"); topology.name != "" {
		if dies := number(topology.attrs["dies"]); dies > 1 {
			m.absent("cpu topology dies=%d", dies)
		} else {
			m.CPU.Sockets = max(number(topology.attrs["sockets"]), 1)
			m.CPU.Cores = max(number(topology.attrs["cores"]), 1)
			m.CPU.Threads = max(number(topology.attrs["threads"]), 1)
		}
	}
	switch mode := part.attrs["mode"]; mode {
	case "host-passthrough", "host-model":
		m.CPU.Model = mode
	case "maximum":
		m.absent("cpu mode=maximum: the guest has the default model")
	default:
		m.CPU.Model = part.value("model")
	}
	if m.CPU.Model != "" && !cpuModel.MatchString(m.CPU.Model) {
		m.absent("cpu model %q", m.CPU.Model)
		m.CPU.Model = ""
	}
	for _, name := range []string{"feature", "numa", "cache", "maxphysaddr"} {
		if n := len(part.all(name)); n > 0 {
			m.absent("cpu %s (%d)", name, n)
		}
	}
}

// domainOS reads the firmware, and refuses what is no virtual machine of this architecture.
func (m *Machine) domainOS(part *node) error {
	kind := part.child("type")
	switch arch := kind.attrs["arch"]; {
	case kind.text != "" && kind.text != "hvm":
		return fmt.Errorf("the domain is of type %q, and only whole machines (hvm) are imported", kind.text)
	case arch != "" && arch != "x86_64" && arch != "i686":
		return fmt.Errorf("the domain's processor is of %q, and only x86_64 is imported", arch)
	}
	loader := part.child("loader")
	m.EFI = part.attrs["firmware"] == "efi" || loader.attrs["type"] == "pflash"
	m.SecureBoot = m.EFI && loader.attrs["secure"] == "yes"
	for _, feature := range part.child("firmware").all("feature") {
		if feature.attrs["name"] == "secure-boot" {
			m.SecureBoot = m.EFI && feature.attrs["enabled"] == "yes"
		}
	}
	if part.has("nvram") {
		m.absent("its EFI variables (nvram): the firmware starts with new ones")
	}
	for _, name := range []string{"kernel", "initrd", "cmdline", "dtb", "init", "bootmenu", "smbios", "acpi"} {
		if part.has(name) {
			m.absent("os %s", name)
		}
	}
	for _, boot := range part.all("boot") {
		m.order = append(m.order, boot.attrs["dev"])
	}
	return nil
}

// domainFeatures says which features the guest does not get. Every guest has ACPI and the APICs.
func (m *Machine) domainFeatures(part *node) {
	for _, feature := range part.children {
		switch feature.name {
		case "acpi", "apic", "pae", "vmport", "smm", "ioapic", "ps2":
		default:
			m.absent("feature %s", feature.name)
		}
	}
}

func (m *Machine) domainClock(part *node) {
	switch offset := part.attrs["offset"]; offset {
	case "utc", "":
	case "timezone":
		m.Timezone = part.attrs["timezone"]
	default:
		m.absent("clock offset=%s: the guest's clock shows UTC", offset)
	}
}

// devices that every guest has here, or that nothing is lost without.
var silent = []string{
	"emulator", "controller", "graphics", "video", "serial", "console", "memballoon", "input", "audio",
}

// domainDevices reads the devices, in their order.
func (m *Machine) domainDevices(part *node) error {
	lost := map[string]int{}
	scsi := "scsi"
	for _, controller := range part.all("controller") {
		if controller.attrs["type"] == "scsi" && strings.HasPrefix(controller.attrs["model"], "virtio") {
			scsi = "virtio-scsi"
		}
	}
	for _, device := range part.children {
		switch name := device.name; {
		case name == "disk":
			if err := m.domainDisk(device, scsi); err != nil {
				return err
			}
		case name == "interface":
			m.domainNIC(device)
		case name == "sound":
			m.domainSound(device)
		case name == "watchdog" && strings.HasPrefix(device.attrs["model"], "i6300esb") &&
			slices.Contains([]string{"poweroff", "reset", "shutdown"}, device.attrs["action"]):
			m.Watchdog = device.attrs["action"]
		case name == "rng":
			m.RNG = true
		case name == "tpm":
			m.TPM = true
		case name == "input" && device.attrs["type"] == "tablet":
			m.Tablet = true
		case name == "channel" && device.child("target").attrs["name"] == "org.qemu.guest_agent.0":
		case name == "channel" && device.attrs["type"] == "spicevmc":
			lost["channel spicevmc"]++
		case slices.Contains(silent, name):
		default:
			lost[device.name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		m.absent("%s (%d)", name, lost[name])
	}
	m.arrange()
	return nil
}

// arrange puts CD drives behind the disks, and numbers what the domain boots from.
func (m *Machine) arrange() {
	slices.SortStableFunc(m.Disks, func(a, b Disk) int {
		return cmp.Compare(map[bool]int{true: 1}[a.CDROM], map[bool]int{true: 1}[b.CDROM])
	})
	m.name()
	next := uint(1)
	for _, kind := range m.order {
		for i := range m.Disks {
			if disk := &m.Disks[i]; (kind == "cdrom") == disk.CDROM && (kind == "cdrom" || kind == "hd") &&
				disk.Boot == 0 {
				disk.Boot = next
				next++
				break
			}
		}
		if kind == "network" && len(m.NICs) > 0 && m.NICs[0].Boot == 0 {
			m.NICs[0].Boot = next
			next++
		}
	}
}

func (m *Machine) domainSound(device *node) {
	switch model := device.attrs["model"]; model {
	case "ac97":
		m.Sound = "ac97"
	case "ich6", "ich7", "ich9":
		m.Sound = "ich9"
	default:
		m.absent("sound %s", model)
	}
}
