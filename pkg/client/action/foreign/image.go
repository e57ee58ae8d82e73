package foreign

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// What a VM of a single image has, which says nothing of a machine.
const (
	imageMemory = 2 << 30
	imageCPUs   = 1
)

var (
	// rawSuffixes are those of raw images, which have no header of their own.
	rawSuffixes = []string{".raw", ".img", ".iso", ".dd"}
	cdSuffix    = ".iso"
)

// single makes a machine of one disk image.
func (f *File) single(path string, whole content, head []byte) error {
	base := filepath.Base(path)
	suffix := strings.ToLower(filepath.Ext(base))
	if compression := imageformat.CompressionOf(head); compression != imageformat.None {
		return fmt.Errorf("it is compressed (%s): decompress it first, or upload it with `virtctl image-upload`, "+
			"which takes it so", compression)
	}
	format, err := imageformat.Detect(head)
	if err != nil {
		return err
	}
	switch {
	case format != imageformat.Raw:
	case suffix == ".vhd":
		format = imageformat.VHD // one of a fixed size has no header
	case !slices.Contains(rawSuffixes, suffix):
		return &UnknownError{}
	}
	disk := Disk{Label: base, File: base, Format: format, Bus: v1.DiskBusSATA, CDROM: suffix == cdSuffix}
	f.Machine = &Machine{
		Name: strings.TrimSuffix(base, filepath.Ext(base)), CPU: CPU{Sockets: imageCPUs, Cores: 1, Threads: 1},
		Memory: imageMemory, Disks: []Disk{disk}, NICs: []NIC{{Model: otherModel}},
	}
	f.Machine.name()
	f.Notes = append(f.Notes, "an image says nothing of a machine: the VM has 1 vCPU, 2Gi, a BIOS, and its disk on "+
		"SATA, unless flags say otherwise")
	if whole.size == 0 {
		return errors.New("the image is empty")
	}
	return f.add(&f.Machine.Disks[0], base, whole)
}
