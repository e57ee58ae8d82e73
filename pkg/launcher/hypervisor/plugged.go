package hypervisor

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// RequestedMemory returns, from a domain's XML, the device through which memory is added and removed, with another
// amount (bytes) asked of the guest. libvirt knows the device only with all that it has written there itself.
func RequestedMemory(text string, bytes int64) (string, error) {
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read the domain's XML: %w", err)
	}
	if domain.Devices != nil {
		for _, device := range domain.Devices.Memorydevs {
			if device.Model == "virtio-mem" && device.Target != nil {
				device.Target.Requested = &libvirtxml.DomainMemorydevTargetRequested{Value: uint(bytes), Unit: "b"}
				return device.Marshal()
			}
		}
	}
	return "", errors.New("the domain has no device for memory that is plugged in")
}

// WithMedium takes the CD-ROM drive with the alias out of a domain's XML, with the image of another disk's XML in it;
// an empty medium is none. All else of a drive stays as it was when the guest was started.
func WithMedium(text, alias, medium string) (string, error) {
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read the domain's XML: %w", err)
	}
	var image libvirtxml.DomainDisk
	if medium != "" {
		if err := image.Unmarshal(medium); err != nil {
			return "", fmt.Errorf("read the disk's XML: %w", err)
		}
	}
	if domain.Devices != nil {
		for i := range domain.Devices.Disks {
			drive := &domain.Devices.Disks[i]
			if drive.Alias == nil || drive.Alias.Name != alias || drive.Device != "cdrom" {
				continue
			}
			drive.Source, drive.BackingStore = image.Source, image.BackingStore
			if drive.Driver != nil && image.Driver != nil {
				drive.Driver.Type = image.Driver.Type
			}
			return drive.Marshal()
		}
	}
	return "", fmt.Errorf("the domain has no CD-ROM drive %s", alias)
}

// WithoutPins removes from a domain's XML the CPUs of the host on which it runs, for another host where it has others;
// it reports whether there were any.
func WithoutPins(text string) (string, bool, error) {
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return "", false, fmt.Errorf("read the domain's XML: %w", err)
	}
	if domain.CPUTune == nil || len(domain.CPUTune.VCPUPin) == 0 && domain.CPUTune.EmulatorPin == nil {
		return text, false, nil
	}
	domain.CPUTune.VCPUPin, domain.CPUTune.EmulatorPin = nil, nil
	out, err := domain.Marshal()
	return out, true, err
}
