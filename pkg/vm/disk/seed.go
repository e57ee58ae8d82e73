package disk

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

const (
	// SeedSuffix ends the names of images that are made of an instance's configuration (domain.Configuration).
	SeedSuffix = ".iso"
	// MaxSeed bounds such an image, bytes: the most that one has of files, and its directories.
	MaxSeed = maxImage + 16<<20
)

// Seeds are the volumes with a disk whose images are made of an instance's configuration.
func Seeds(spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; isSeed(v) && diskIn(spec, v.Name) {
			out = append(out, v.Name)
		}
	}
	return out
}

// WithoutSeeds is a spec without those volumes and their disks. It shares all else with spec and must not be written
// to.
func WithoutSeeds(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out, gone := *spec, map[string]bool{}
	out.Volumes, out.Domain.Devices.Disks = nil, nil
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; isSeed(v) {
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

func isSeed(v *v1.Volume) bool { return domain.Configuration(v) }

func diskIn(spec *v1.VirtualMachineInstanceSpec, name string) bool {
	for i := range spec.Domain.Devices.Disks {
		if spec.Domain.Devices.Disks[i].Name == name {
			return true
		}
	}
	return false
}
