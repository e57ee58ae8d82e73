package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A VM of Proxmox VE is described by lines of KEY: VALUE, https://pve.proxmox.com/wiki/Manual:_qm.conf, in the file
// /etc/pve/qemu-server/ID.conf, in an archive of vzdump (vma.go), and in the directory that `vma extract` makes of one.

// proxmox is the text of a VM of Proxmox.
type proxmox struct {
	values map[string]string
	// sections are what follows the VM: its snapshots and changes that are pending.
	sections []string
}

var (
	proxmoxLine = regexp.MustCompile(`^([a-z][a-z0-9_]*):\s*(.*)$`)
	// proxmoxKey is a key with its number.
	proxmoxKey = regexp.MustCompile(`^([a-z_]+?)([0-9]*)$`)
)

// parseProxmox reads the lines of a VM. UnknownError is the answer to what is no such text at all.
func parseProxmox(text []byte) (*proxmox, error) {
	out := &proxmox{values: map[string]string{}}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#': // a description, or vzdump's notes
			continue
		case line[0] == '[' && line[len(line)-1] == ']':
			out.sections = append(out.sections, line[1:len(line)-1])
			continue
		case len(out.sections) > 0:
			continue
		}
		found := proxmoxLine.FindStringSubmatch(line)
		switch {
		case found == nil && len(out.values) == 0:
			return nil, &UnknownError{}
		case found == nil:
			return nil, fmt.Errorf("line %d is not of the form KEY: VALUE", n)
		}
		if _, twice := out.values[found[1]]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n, found[1])
		}
		out.values[found[1]] = found[2]
	}
	if len(out.values) == 0 {
		return nil, &UnknownError{}
	}
	return out, nil
}

// nets returns the keys of the interfaces, in their order.
func (p *proxmox) nets() []string {
	var out []string
	for key := range p.values {
		if parts := proxmoxKey.FindStringSubmatch(key); parts != nil && parts[1] == "net" && parts[2] != "" {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// options reads A,KEY=VALUE,…; A, which has no key, is that of the key first.
func options(value, first string) map[string]string {
	out := map[string]string{}
	for i, part := range strings.Split(value, ",") {
		key, text, given := strings.Cut(part, "=")
		switch {
		case !given && i == 0:
			out[first] = part
		case given:
			out[key] = text
		default:
			out[part] = ""
		}
	}
	return out
}

// proxmoxDrive is a disk or CD drive of a VM of Proxmox, by its key.
type proxmoxDrive struct {
	key, volume string
	// left says that backups do not have it.
	left bool
}

// readProxmox returns the machine that the text describes, and its drives in the order of its disks.
func readProxmox(text []byte) (*Machine, []proxmoxDrive, error) {
	of, err := parseProxmox(text)
	if err != nil {
		return nil, nil, err
	}
	m := &Machine{Name: of.values["name"], Memory: 512 << 20, Tablet: of.values["tablet"] != "0"}
	if arch := of.values["arch"]; arch != "" && arch != "x86_64" {
		return nil, nil, fmt.Errorf("the VM's processor is of %q, and only x86_64 is imported", arch)
	}
	m.CPU.Sockets, m.CPU.Cores, m.CPU.Threads = 1, 1, 1
	var keys []string
	for key := range of.values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, byNumber)
	var drives []proxmoxDrive
	for _, key := range keys {
		d, err := m.proxmoxValue(key, of.values[key], of)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		if d != nil {
			drives = append(drives, *d)
		}
	}
	if n := len(of.sections); n > 0 {
		m.absent("snapshots and pending changes (%d): the VM is as it is now", n)
	}
	if disk := of.values["efidisk0"]; m.EFI && disk != "" {
		// The disk with EFI's variables says by their keys whether Secure Boot is on.
		m.SecureBoot = options(disk, "file")["pre-enrolled-keys"] == "1"
		m.absent("its EFI variables (efidisk0): the firmware starts with new ones")
	}
	m.proxmoxBoot(of, drives)
	drives = m.sortDrives(drives)
	return m, drives, m.check()
}

// byNumber orders keys by their kinds, disks by their controllers first, and then by their numbers.
func byNumber(a, b string) int {
	kinds := []string{"virtio", "scsi", "sata", "ide"}
	one, other := proxmoxKey.FindStringSubmatch(a), proxmoxKey.FindStringSubmatch(b)
	if one == nil || other == nil {
		return cmp.Compare(a, b)
	}
	place := func(kind string) int {
		if i := slices.Index(kinds, kind); i >= 0 {
			return i
		}
		return len(kinds)
	}
	return cmp.Or(cmp.Compare(place(one[1]), place(other[1])), cmp.Compare(one[1], other[1]),
		cmp.Compare(number(one[2]), number(other[2])))
}

// sortDrives puts CD drives behind the disks, as arrange does, which numbers them.
func (m *Machine) sortDrives(drives []proxmoxDrive) []proxmoxDrive {
	var out []proxmoxDrive
	for _, cd := range []bool{false, true} {
		for i := range m.Disks {
			if m.Disks[i].CDROM == cd {
				out = append(out, drives[i])
			}
		}
	}
	m.arrange()
	return out
}

// silentKeys are of the host or the hypervisor, or of no effect here.
var silentKeys = []string{
	"name", "meta", "digest", "ostype", "boot", "bootdisk", "lock", "agent", "tablet", "keyboard", "hotplug",
	"template", "scsihw", "vmgenid", "machine", "arch", "serial", "parent", "snaptime", "vmstate", "runningmachine",
	"runningcpu", "efidisk", "migrate_downtime", "migrate_speed", "spice_enhancements",
}

// neutralValues are of settings that have an effect, which is not imported: the value that says what is so here anyway.
var neutralValues = map[string]string{
	"acpi": "1", "kvm": "1", "onboot": "0", "autostart": "0", "protection": "0", "reboot": "1", "freeze": "0",
	"balloon": "0", "cpulimit": "0", "vga": "std",
}

// seedKeys are those of cloud-init.
var seedKeys = []string{
	"cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "ipconfig", "nameserver", "searchdomain", "sshkeys",
}

// proxmoxValue reads a line. It returns the drive that is one.
func (m *Machine) proxmoxValue(key, value string, of *proxmox) (*proxmoxDrive, error) {
	parts := proxmoxKey.FindStringSubmatch(key)
	if parts == nil {
		m.absent("%s", key)
		return nil, nil
	}
	switch kind := parts[1]; {
	case slices.Contains([]string{"ide", "sata", "scsi", "virtio"}, kind) && parts[2] != "":
		return m.proxmoxDrive(key, value, of)
	case kind == "net" && parts[2] != "":
		m.proxmoxNIC(value)
	case slices.Contains(seedKeys, kind):
		m.absent("its cloud-init setting %s: give the guest cloud-init data anew", key)
	case kind == "unused":
		m.absent("%s: the VM does not have this disk, %s", key, value)
	case slices.Contains(silentKeys, kind), value != "" && neutralValues[kind] == value:
	default:
		return nil, m.proxmoxPart(key, kind, value)
	}
	return nil, nil
}

// proxmoxPart reads what is neither a drive nor an interface.
func (m *Machine) proxmoxPart(key, kind, value string) error {
	switch kind {
	case "memory":
		size, ok := times(options(value, "current")["current"], 1<<20)
		if !ok {
			return fmt.Errorf("%q is no size in MiB", value)
		}
		m.Memory = size
	case "sockets":
		return amount(value, &m.CPU.Sockets)
	case "cores":
		return amount(value, &m.CPU.Cores)
	case "vcpus":
		m.absent("vcpus=%s: the guest has all CPUs from the start", value)
	case "cpu":
		m.proxmoxCPU(value)
	case "bios":
		m.EFI = value == "ovmf"
	case "smbios":
		given := options(value, "uuid")
		m.UUID = uuidOf(given["uuid"])
		if delete(given, "uuid"); len(given) > 0 {
			m.absent("%s: %s", key, strings.Join(slices.Sorted(maps.Keys(given)), ", "))
		}
	case "tpmstate":
		m.TPM = true
	case "localtime":
		if value == "1" {
			m.absent("localtime: the guest's clock shows UTC")
		}
	case "audio":
		m.proxmoxSound(options(value, "device")["device"])
	case "rng":
		m.RNG = true
	case "watchdog":
		given := options(value, "model")
		if model, action := given["model"], given["action"]; model == "i6300esb" &&
			slices.Contains([]string{"poweroff", "reset", "shutdown"}, action) {
			m.Watchdog = action
		} else {
			m.absent("watchdog %s", value)
		}
	case "numa":
		if value != "0" {
			m.absent("%s %s", key, value)
		}
	default:
		m.absent("%s", key)
	}
	return nil
}

// amount reads a number of CPUs.
func amount(value string, to *uint32) error {
	if *to = number(value); *to == 0 {
		return fmt.Errorf("%q is no number of CPUs", value)
	}
	return nil
}

// proxmoxCPU reads the model of the processor. Those that Proxmox has made up are known nowhere else.
func (m *Machine) proxmoxCPU(value string) {
	given := options(value, "cputype")
	switch model := given["cputype"]; {
	case model == "host":
		m.CPU.Model = "host-passthrough"
	case model == "" || model == "max" || strings.HasPrefix(model, "x86-64-") || strings.HasPrefix(model, "custom-") ||
		!cpuModel.MatchString(model):
		m.absent("cpu %s: the guest has the default model", model)
	default:
		m.CPU.Model = model
	}
	if flags := given["flags"]; flags != "" {
		m.absent("cpu flags %s", flags)
	}
}

func (m *Machine) proxmoxSound(device string) {
	switch device {
	case "AC97":
		m.Sound = "ac97"
	case "ich9-intel-hda", "intel-hda":
		m.Sound = "ich9"
	default:
		m.absent("audio %s", device)
	}
}

// proxmoxDrive reads a disk or a CD drive; nil for one that holds cloud-init's data.
func (m *Machine) proxmoxDrive(key, value string, of *proxmox) (*proxmoxDrive, error) {
	given := options(value, "file")
	volume := cmp.Or(given["file"], given["volume"])
	d := Disk{Label: key, CDROM: given["media"] == "cdrom"}
	switch {
	case d.CDROM && strings.Contains(volume, "cloudinit"):
		m.absent("%s, the drive with cloud-init's data", key)
		return nil, nil
	case d.CDROM && volume == "cdrom":
		m.absent("what is in %s, the host's own drive: it is empty", key)
		volume = ""
	case d.CDROM && volume == "none":
		volume = ""
	case volume == "" || volume == "none":
		return nil, errors.New("it names no volume")
	}
	bus := strings.TrimRight(key, "0123456789")
	if hardware := of.values["scsihw"]; bus == "scsi" && strings.HasPrefix(hardware, "virtio-scsi") {
		bus = "virtio-scsi"
	}
	d.on(bus)
	if text := given["serial"]; serial.MatchString(text) {
		d.Serial = text
	} else if text != "" {
		m.absent("the serial of %s, %q", key, text)
	}
	for _, part := range []string{
		"bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr", "mbps", "mbps_rd", "mbps_wr", "shared", "ro",
		"snapshot",
	} {
		if text, has := given[part]; has && text != "0" {
			m.absent("%s of %s", part, key)
		}
	}
	m.Disks = append(m.Disks, d)
	return &proxmoxDrive{key: key, volume: volume, left: given["backup"] == "0"}, nil
}

// proxmoxNIC reads an interface: MODEL=MAC,bridge=…, or model=MODEL,macaddr=MAC,….
func (m *Machine) proxmoxNIC(value string) {
	given := options(value, "model")
	model, mac := given["model"], given["macaddr"]
	if first, address, ok := strings.Cut(value, "="); ok && model == "" {
		model = first
		mac, _, _ = strings.Cut(address, ",")
	}
	n := NIC{MAC: macOf(mac), Network: given["bridge"]}
	n.as(strings.ReplaceAll(model, "_", "-"))
	for _, part := range []string{"tag", "trunks", "rate", "firewall", "mtu", "link_down", "queues"} {
		if text, has := given[part]; has && text != "0" {
			m.absent("%s=%s of the interface in %s", part, text, n.Network)
		}
	}
	m.NICs = append(m.NICs, n)
}

// proxmoxBoot reads what the VM boots from: order=KEY;KEY…, or of old letters of kinds, and a disk. drives are those
// of the disks.
func (m *Machine) proxmoxBoot(of *proxmox, drives []proxmoxDrive) {
	given := options(of.values["boot"], "legacy")
	index := func(key string) int {
		return slices.IndexFunc(drives, func(d proxmoxDrive) bool { return d.key == key })
	}
	if order, ok := given["order"]; ok {
		next := uint(1)
		for _, key := range strings.Split(order, ";") {
			i, nic := index(key), slices.Index(of.nets(), key)
			switch {
			case i >= 0 && m.Disks[i].Boot == 0:
				m.Disks[i].Boot = next
			case nic >= 0 && m.NICs[nic].Boot == 0:
				m.NICs[nic].Boot = next
			default:
				continue
			}
			next++
		}
		return
	}
	if i := index(of.values["bootdisk"]); i >= 0 {
		m.Disks[i].Boot = 1
	}
	for _, letter := range given["legacy"] {
		if kind := map[rune]string{'c': "hd", 'd': "cdrom", 'n': "network"}[letter]; kind != "" && m.Disks != nil {
			m.order = append(m.order, kind)
		}
	}
	if of.values["bootdisk"] != "" {
		m.order = nil // its numbers would be given twice
	}
}

// candidates are the names that the file of a drive may have beside the text: those of `vma extract`, and of the
// volume on its storage.
func (d *proxmoxDrive) candidates() []string {
	_, volume, found := strings.Cut(d.volume, ":")
	if !found {
		volume = d.volume
	}
	base := path.Base(volume)
	if base == "/" {
		base = "." // the directory itself, which is no file
	}
	out := []string{"disk-drive-" + d.key + ".raw", base}
	for _, suffix := range []string{".raw", ".qcow2", ".vmdk"} {
		out = append(out, base+suffix)
	}
	return out
}
