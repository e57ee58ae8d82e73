package disk

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

const (
	// ConfigImageSuffix ends the file names of config images: cloud-init's and those of other volumes that hold a
	// VMI's configuration (claims.Configuration).
	ConfigImageSuffix = ".iso"
	// MaxConfigImage is the largest size of a config image, bytes: its files at most, and its directories.
	MaxConfigImage = maxImage + 16<<20
)

// ConfigImages returns the names of the volumes that have a disk with a config image.
func ConfigImages(spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; hasConfigImage(v) && diskIn(spec, v.Name) {
			out = append(out, v.Name)
		}
	}
	return out
}

// WithoutConfigImages returns spec without the volumes that have config images, and without their disks. It shares all
// else with spec and must not be written to.
func WithoutConfigImages(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out, gone := *spec, map[string]bool{}
	out.Volumes, out.Domain.Devices.Disks = nil, nil
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; hasConfigImage(v) {
			gone[v.Name] = true
		} else {
			out.Volumes = append(out.Volumes, *v)
		}
	}
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; !gone[d.Name] {
			out.Domain.Devices.Disks = append(out.Domain.Devices.Disks, *d)
		}
	}
	return &out
}

func hasConfigImage(v *v1.Volume) bool { return claims.Configuration(v) }

func diskIn(spec *v1.VirtualMachineInstanceSpec, name string) bool {
	for i := range spec.Domain.Devices.Disks {
		if spec.Domain.Devices.Disks[i].Name == name {
			return true
		}
	}
	return false
}
