package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// A backup of a VM of Incus or LXD, as `incus export` writes it without --optimized-storage and with
// --compression=none, is a tar of an index, the VM's own files and its disk. The keys are those of
// https://linuxcontainers.org/incus/docs/main/.

const (
	incusDirectory = "backup/"
	incusIndex     = incusDirectory + "index.yaml"
	incusDisk      = incusDirectory + "virtual-machine.img"
)

// incus is what is read of an index.
type incus struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Optimized bool     `json:"optimized"`
	Snapshots []string `json:"snapshots"`
	Config    struct {
		Instance *incusVM `json:"instance"`
		// Container is what older ones call the instance.
		Container *incusVM `json:"container"`
	} `json:"config"`
}

// incusVM is a VM; what is expanded has what its profiles give it, too.
type incusVM struct {
	Architecture    string                       `json:"architecture"`
	ExpandedConfig  map[string]string            `json:"expanded_config"`
	ExpandedDevices map[string]map[string]string `json:"expanded_devices"`
}

// readIncus returns the machine that an index describes.
func readIncus(text []byte) (*Machine, error) {
	var index incus
	if err := yaml.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("it is no index of a backup: %w", err)
	}
	vm := cmp.Or(index.Config.Instance, index.Config.Container)
	switch {
	case index.Type != "virtual-machine":
		return nil, fmt.Errorf("it is a backup of type %q, and only those of virtual-machine are imported", index.Type)
	case index.Optimized:
		return nil, fmt.Errorf("it has the disk as its storage has it: export it without --optimized-storage")
	case vm == nil:
		return nil, fmt.Errorf("it does not say what the VM is like: it has no config.instance")
	case vm.Architecture != "" && vm.Architecture != "x86_64":
		return nil, fmt.Errorf("the VM's processor is of %q, and only x86_64 is imported", vm.Architecture)
	}
	config := vm.ExpandedConfig
	m := &Machine{
		Name: index.Name, UUID: uuidOf(config["volatile.uuid"]), EFI: config["security.csm"] != "true", RNG: true,
		CPU: CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 1 << 30, // as Incus has it
	}
	m.SecureBoot = m.EFI && config["security.secureboot"] != "false"
	if m.EFI {
		m.absent("its EFI variables: the firmware starts with new ones")
	}
	if n := len(index.Snapshots); n > 0 {
		m.absent("snapshots (%d): the VM is as it is now", n)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if err := m.incusConfig(key, config[key]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vm.ExpandedDevices)) {
		m.incusDevice(name, vm.ExpandedDevices[name], config)
	}
	if len(m.Disks) == 0 {
		return nil, fmt.Errorf("the VM has no root disk")
	}
	m.arrange()
	return m, m.check()
}

// incusConfig reads a setting.
func (m *Machine) incusConfig(key, value string) error {
	switch {
	case key == "limits.cpu":
		if m.CPU.Sockets = number(value); m.CPU.Sockets == 0 {
			m.CPU.Sockets = 1
			m.absent("limits.cpu %s: the VM has 1 CPU, unless --cpu is given", value)
		}
	case key == "limits.memory":
		size, ok := incusSize(value)
		if !ok {
			m.absent("limits.memory %s: the VM has 1Gi, unless --memory is given", value)
			return nil
		}
		m.Memory = size
	case strings.HasPrefix(key, "cloud-init."), strings.HasPrefix(key, "user."):
		m.absent("%s: give the guest cloud-init data anew", key)
	case strings.HasPrefix(key, "raw."), strings.HasPrefix(key, "limits."), strings.HasPrefix(key, "snapshots."),
		strings.HasPrefix(key, "boot.") && value != "false" && value != "0":
		m.absent("%s", key)
	}
	return nil
}

var incusSizes = regexp.MustCompile(`^([0-9]+) ?([kMGT]i?B|B|)$`)

// incusSize reads a size; false for one of the host's memory, in per cent.
func incusSize(text string) (int64, bool) {
	found := incusSizes.FindStringSubmatch(text)
	if found == nil {
		return 0, false
	}
	units := map[string]int64{
		"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "kiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
		"TiB": 1 << 40,
	}
	return times(found[1], units[found[2]])
}

// incusDevice reads a device.
func (m *Machine) incusDevice(name string, device, config map[string]string) {
	switch kind := device["type"]; {
	case kind == "none":
	case kind == "disk" && device["path"] == "/":
		m.Disks = append(m.Disks, Disk{
			Label: name, File: incusDisk, Format: imageformat.Raw, Bus: incusBus(device["io.bus"]), Boot: 1,
		})
	case kind == "disk":
		m.absent("%s, a disk of %s: it is not in the backup", name,
			cmp.Or(device["source"], device["pool"], "the host"))
	case kind == "nic":
		n := NIC{
			Network: cmp.Or(device["network"], device["parent"], device["nictype"]),
			MAC:     macOf(cmp.Or(device["hwaddr"], config["volatile."+name+".hwaddr"])),
		}
		n.as("virtio")
		m.NICs = append(m.NICs, n)
	case kind == "tpm":
		m.TPM = true
	default:
		m.absent("%s (%s)", name, kind)
	}
}

// incusBus is the bus of a disk; Incus's own is virtio-scsi.
func incusBus(bus string) v1.DiskBus {
	if bus == "virtio-blk" {
		return v1.DiskBusVirtio
	}
	return v1.DiskBusSCSI
}

// incusBackup reads a backup whose members were found.
func (f *File) incusBackup(members map[string]content) error {
	text, err := members[incusIndex].read(maxDescriptor)
	if err != nil {
		return fmt.Errorf("%s: %w", incusIndex, err)
	}
	f.descriptor, f.described = text, incusIndex
	if f.Machine, err = readIncus(text); err != nil {
		return fmt.Errorf("%s: %w", incusIndex, err)
	}
	return f.attach(func(name string) (content, error) {
		in, has := members[name]
		if !has {
			return content{}, fmt.Errorf("the backup has no %s", name)
		}
		return in, nil
	})
}
