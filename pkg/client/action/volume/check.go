package volume

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FieldError is what keeps a request from being sent. Field is the flag of virtctl that has the value.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// CheckAdd returns what is wrong with a request to add a volume before a server sees it, as a *FieldError.
func (o *Options) CheckAdd() error {
	if err := o.CheckRemove(); err != nil {
		return err
	}
	const label = "at most 63 lower-case letters, digits and -"
	if o.Disk != "" && len(validation.IsDNS1123Label(o.Disk)) > 0 {
		return &FieldError{"disk-name", fmt.Sprintf("%q is not a name; use %s", o.Disk, label)}
	}
	if o.Disk == "" && len(validation.IsDNS1123Label(o.Volume)) > 0 {
		return &FieldError{"disk-name", fmt.Sprintf("give one: %q cannot name a disk, which takes %s", o.Volume, label)}
	}
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{
		{"disk-type", o.DiskType, DiskTypes},
		{"bus", o.Bus, Buses},
		{"cache", o.Cache, Caches},
	} {
		if f.value != "" && !slices.Contains(f.allowed, f.value) {
			return &FieldError{f.name, fmt.Sprintf("%q is not one of %s", f.value, strings.Join(f.allowed, ", "))}
		}
	}
	if o.DiskType != "" && o.DiskType != "disk" && o.Bus == "virtio" {
		return &FieldError{"bus", fmt.Sprintf("virtio has disks only; use scsi for a %s", o.DiskType)}
	}
	return nil
}

// CheckRemove does the same for a request to remove a volume.
func (o *Options) CheckRemove() error {
	switch {
	case o.Volume == "":
		return &FieldError{"volume-name", "give the name of the PersistentVolumeClaim"}
	case len(content.IsPathSegmentName(o.Volume)) > 0:
		return &FieldError{"volume-name", fmt.Sprintf("%q is not a name", o.Volume)}
	}
	return nil
}
