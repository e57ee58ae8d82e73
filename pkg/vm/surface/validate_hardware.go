package surface

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/pci"
)

var (
	lunBuses          = []string{string(v1.DiskBusSCSI)}
	soundModels       = []string{"ich9", "ac97"}
	ioThreadsPolicies = []string{
		string(v1.IOThreadsPolicyShared), string(v1.IOThreadsPolicyAuto),
		string(v1.IOThreadsPolicySupplementalPool),
	}
)

const (
	// maxIOThreads is the largest pool of I/O threads: more than any node has use for.
	maxIOThreads = 1024
	// maxACPIIndex is the largest index of an interface; KubeVirt's limit, and the kernel's for names.
	maxACPIIndex = 16383
	// maxTag is the longest tag, bytes.
	maxTag = 256
	// maxDHCPOption is the longest option of DHCP, bytes.
	maxDHCPOption = 255
	// Options of DHCP that are a site's own; KubeVirt's limits.
	firstPrivateOption, lastPrivateOption = 224, 254
	// maxNTPServers is the number of addresses that fit into one option.
	maxNTPServers = maxDHCPOption / 4
)

func validateSound(sound *v1.SoundDevice, at *field.Path) field.ErrorList {
	switch {
	case sound == nil:
		return nil
	case sound.Name == "":
		return field.ErrorList{field.Required(at.Child("name"), "is not set")}
	case !cpuNamePattern.MatchString(sound.Name):
		return field.ErrorList{field.Invalid(at.Child("name"), sound.Name,
			fmt.Sprintf("%q is not a device name; use letters, digits, - and _", sound.Name))}
	}
	return nil
}

func validateIOThreads(d *v1.DomainSpec, path *field.Path) field.ErrorList {
	at := path.Child("ioThreads", "supplementalPoolThreadCount")
	pool := d.IOThreadsPolicy != nil && *d.IOThreadsPolicy == v1.IOThreadsPolicySupplementalPool
	var count *uint32
	if d.IOThreads != nil {
		count = d.IOThreads.SupplementalPoolThreadCount
	}
	switch {
	case pool && (count == nil || *count == 0):
		return field.ErrorList{
			field.Required(at, "is not set; ioThreadsPolicy supplementalPool needs the number of threads, 1 or more"),
		}
	case count != nil && *count > maxIOThreads:
		return field.ErrorList{
			field.Invalid(at, *count, fmt.Sprintf("%d are too many threads; the most is %d", *count, maxIOThreads)),
		}
	case count != nil && !pool:
		return field.ErrorList{
			field.Forbidden(at, "has no meaning but with ioThreadsPolicy: supplementalPool; set that or remove it"),
		}
	}
	return nil
}

// busOf returns the bus of a disk that has its defaults.
func busOf(disk *v1.Disk) v1.DiskBus {
	switch {
	case disk.CDRom != nil:
		return disk.CDRom.Bus
	case disk.LUN != nil:
		return disk.LUN.Bus
	case disk.Disk != nil:
		return disk.Disk.Bus
	}
	return ""
}

// validateTransport checks what of a disk depends on its bus.
func validateTransport(disk *v1.Disk, volume *v1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	bus := busOf(disk)
	if own := disk.DedicatedIOThread; own != nil && *own && bus != v1.DiskBusVirtio {
		errs = append(errs, field.Forbidden(at.Child("dedicatedIOThread"),
			fmt.Sprintf("is for virtio disks, and this one is on %s; change its bus or remove it", bus)))
	}
	if disk.Disk != nil && disk.Disk.PciAddress != "" && bus != v1.DiskBusVirtio {
		errs = append(errs, field.Forbidden(at.Child("disk", "pciAddress"),
			fmt.Sprintf("is for virtio disks, and this one is on %s; change its bus or remove it", bus)))
	}
	if disk.LUN != nil && volume != nil && !claims.Storage(volume) {
		errs = append(errs, field.Forbidden(at.Child("lun"), "hands SCSI commands to the device of a claim with "+
			"volumeMode Block, and the volume is none; use disk: {bus: scsi}"))
	}
	if size := disk.BlockSize; size != nil && size.Custom != nil && size.MatchVolume != nil &&
		(size.MatchVolume.Enabled == nil || *size.MatchVolume.Enabled) {
		errs = append(errs, field.Forbidden(at.Child("blockSize"), "has both custom and matchVolume; keep one"))
	}
	return errs
}

// validateAddresses checks where devices are to be on the guest's buses.
func validateAddresses(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[pci.Address]string{}
	check := func(text, name string, at *field.Path) {
		if text == "" {
			return
		}
		a, err := pci.Parse(text)
		if err != nil {
			errs = append(errs, field.Invalid(at, text, err.Error()))
			return
		}
		if a == (pci.Address{}) {
			errs = append(errs, field.Invalid(at, text, "is the host bridge's; use another, such as 0000:03:00.0"))
		}
		if other, ok := taken[a]; ok {
			errs = append(errs, field.Invalid(at, text,
				fmt.Sprintf("%s is the address of %q, too; give each device its own", a, other)))
		}
		taken[a] = name
	}
	devices := root.Child("domain", "devices")
	for i, disk := range spec.Domain.Devices.Disks {
		if disk.Disk != nil {
			check(disk.Disk.PciAddress, disk.Name, devices.Child("disks").Index(i).Child("disk", "pciAddress"))
		}
	}
	indexes := map[int]string{}
	for i, nic := range spec.Domain.Devices.Interfaces {
		at := devices.Child("interfaces").Index(i)
		check(nic.PciAddress, nic.Name, at.Child("pciAddress"))
		switch n := nic.ACPIIndex; {
		case n == 0:
		case n < 0 || n > maxACPIIndex:
			errs = append(errs,
				field.Invalid(at.Child("acpiIndex"), n, fmt.Sprintf("%d is not from 1 to %d", n, maxACPIIndex)))
		case indexes[n] != "":
			errs = append(errs, field.Invalid(at.Child("acpiIndex"), n,
				fmt.Sprintf("%d is the index of interface %q, too; give each its own", n, indexes[n])))
		default:
			indexes[n] = nic.Name
		}
	}
	return errs
}

// validateTags checks the tags of devices, which only a config drive carries into the guest.
func validateTags(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	drive := false
	for i := range spec.Volumes {
		drive = drive || spec.Volumes[i].CloudInitConfigDrive != nil
	}
	var errs field.ErrorList
	check := func(tag string, at *field.Path) {
		switch {
		case tag == "":
		case len(tag) > maxTag || !printable.MatchString(tag):
			errs = append(errs,
				field.Invalid(at, tag, fmt.Sprintf("must be at most %d printable ASCII characters", maxTag)))
		case !drive:
			errs = append(errs, field.Forbidden(at, "reaches the guest in the meta data of a cloudInitConfigDrive "+
				"volume, and there is none; add one or remove the tag"))
		}
	}
	devices := root.Child("domain", "devices")
	for i := range spec.Domain.Devices.Disks {
		check(spec.Domain.Devices.Disks[i].Tag, devices.Child("disks").Index(i).Child("tag"))
	}
	for i := range spec.Domain.Devices.Interfaces {
		check(spec.Domain.Devices.Interfaces[i].Tag, devices.Child("interfaces").Index(i).Child("tag"))
	}
	return errs
}

// validateState checks that an interface may be absent: the pod has its own network, whether the guest is on it or not.
func validateState(nic *v1.Interface, network *v1.Network, at *field.Path) field.ErrorList {
	if nic.State != v1.InterfaceStateAbsent || network == nil || network.Multus != nil && !network.Multus.Default {
		return nil
	}
	return field.ErrorList{
		field.Invalid(at, nic.State,
			fmt.Sprintf("%q is for networks besides the pod's; use down, or remove the interface and its network",
				nic.State)),
	}
}

func validateDHCP(o *v1.DHCPOptions, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	text := func(value string, at *field.Path) {
		if len(value) > maxDHCPOption || !printable.MatchString(value) {
			errs = append(errs,
				field.Invalid(at, value, fmt.Sprintf("must be at most %d printable ASCII characters", maxDHCPOption)))
		}
	}
	text(o.BootFileName, at.Child("bootFileName"))
	text(o.TFTPServerName, at.Child("tftpServerName"))
	if n := len(o.NTPServers); n > maxNTPServers {
		errs = append(errs,
			field.Invalid(at.Child("ntpServers"), n, fmt.Sprintf("has %d entries; the most is %d", n, maxNTPServers)))
	}
	for i, server := range o.NTPServers {
		if a, err := netip.ParseAddr(server); err != nil || !a.Is4() {
			errs = append(errs, field.Invalid(at.Child("ntpServers").
				Index(i), server, fmt.Sprintf("%q is not an IPv4 address", server)))
		}
	}
	seen := map[int]bool{}
	for i, option := range o.PrivateOptions {
		here := at.Child("privateOptions").Index(i)
		switch n := option.Option; {
		case n < firstPrivateOption || n > lastPrivateOption:
			errs = append(errs, field.Invalid(here.Child("option"), n,
				fmt.Sprintf("%d is not from %d to %d", n, firstPrivateOption, lastPrivateOption)))
		case seen[n]:
			errs = append(errs, field.Invalid(here.Child("option"), n, fmt.Sprintf("%d is there twice; remove one", n)))
		}
		seen[option.Option] = true
		if option.Value == "" {
			errs = append(errs, field.Required(here.Child("value"), "is not set"))
		}
		text(option.Value, here.Child("value"))
	}
	return errs
}

// isTable reports a volume that is an ACPI table and so no disk.
func isTable(domain *v1.DomainSpec, volume string) bool {
	f := domain.Firmware
	return f != nil && f.ACPI != nil && (f.ACPI.SlicNameRef == volume || f.ACPI.MsdmNameRef == volume)
}

// validateTables checks that the ACPI tables that a spec names are volumes in it.
func validateTables(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	f := spec.Domain.Firmware
	if f == nil || f.ACPI == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(name, reference string) {
		if name == "" {
			return
		}
		at := root.Child("domain", "firmware", "acpi", reference)
		i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
		switch {
		case i < 0:
			err := field.NotFound(at, name)
			err.Detail = fmt.Sprintf("no volume is named %q; add it to volumes, as a secret", name)
			errs = append(errs, err)
		case spec.Volumes[i].Secret == nil:
			errs = append(errs,
				field.Invalid(at, name, fmt.Sprintf("volume %q is no Secret; use one with the table in it", name)))
		}
	}
	check(f.ACPI.SlicNameRef, "slicNameRef")
	check(f.ACPI.MsdmNameRef, "msdmNameRef")
	return errs
}
