package disk

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Facts hold what inspect found for one volume.
type Facts struct {
	// Path and Header are the container disk's image.
	Path   string
	Header Header
	// Checksum is the container disk's.
	Checksum uint32
	// Block says that a claim is a device, Exists that a file system claim has its disk.img.
	Block, Exists bool
	// Size is the size of a claim's image, bytes; of a device, only where it matters: of an ephemeral volume, and of
	// one to which a disk is to be copied.
	Size int64
	// Free is the space that a claim's file system has left for us, bytes.
	Free int64
	// UserData and NetworkData are the contents of cloud-init's secrets.
	UserData, NetworkData []byte
	// PublicKeys are the keys of spec.accessCredentials that cloud-init is to authorize.
	PublicKeys []string
	// Files are the files of a volume that is an image of files: sysprep's, a ConfigMap's, …
	Files map[string][]byte
}

// Action is the way in which a Step makes its image.
type Action string

// The actions, in words as they appear in plans.
const (
	// CreateQcow2 makes an empty qcow2 image, over Backing if there is one.
	CreateQcow2 Action = "create-qcow2"
	// CreateRaw makes a sparse file of Size zero bytes, unless the file is there.
	CreateRaw Action = "create-raw"
	// WriteFile writes Data.
	WriteFile Action = "write-file"
)

// Step makes one image.
type Step struct {
	Volume  string
	Action  Action
	Path    string
	Size    int64          `json:",omitempty"`
	Backing *domain.Source `json:",omitempty"`
	Data    []byte         `json:",omitempty"`
}

// Plan holds the images to make, and the place of each volume's image afterwards.
type Plan struct {
	Steps   []Step
	Sources map[string]domain.Source
}

// NewPlan plans the images of those volumes that a disk of the VMI uses.
func NewPlan(vmi *v1.VirtualMachineInstance, dirs Dirs, facts map[string]Facts) (Plan, error) {
	p := Plan{Sources: map[string]domain.Source{}}
	if config := vmi.Annotations[v1.IgnitionAnnotation]; config != "" {
		p.Steps = append(p.Steps, Step{Action: WriteFile, Path: dirs.Ignition(), Data: []byte(config)})
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		d := diskOf(vmi, v.Name)
		if d == nil {
			continue
		}
		if err := p.add(vmi, v, d, dirs, facts[v.Name]); err != nil {
			return Plan{}, volumeError(v.Name, err)
		}
		if src, ok := p.Sources[v.Name]; ok && matchesVolume(d) {
			src.Blocks = &domain.Blocks{} // to be read once the image is there
			p.Sources[v.Name] = src
		}
	}
	return p, nil
}

func (p *Plan) add(vmi *v1.VirtualMachineInstance, v *v1.Volume, d *v1.Disk, dirs Dirs, f Facts) error {
	switch {
	case v.ContainerDisk != nil:
		p.containerDisk(v, d, dirs, f)
	case v.EmptyDisk != nil:
		size := roundUp(v.EmptyDisk.Capacity.Value(), sectorSize)
		if size <= 0 {
			return invalidf("emptyDisk.capacity must be more than zero")
		}
		path := dirs.overlay(v.Name)
		p.Steps = append(p.Steps, Step{Volume: v.Name, Action: CreateQcow2, Path: path, Size: size})
		p.Sources[v.Name] = domain.Source{Path: path, Format: FormatQcow2}
	case v.PersistentVolumeClaim != nil, v.DataVolume != nil:
		return p.claim(vmi, v, dirs, f)
	case v.CloudInitNoCloud != nil, v.CloudInitConfigDrive != nil:
		label, files, err := cloudInitFiles(vmi, v, f)
		if err != nil {
			return err
		}
		return p.image(v, d, dirs, label, files)
	case v.Sysprep != nil:
		return p.image(v, d, dirs, sysprepLabel, f.Files)
	case v.DownwardMetrics != nil:
		return p.metrics(v, dirs)
	case v.HostDisk != nil:
		p.Sources[v.Name] = domain.Source{Path: dirs.hostDisk(v), Format: FormatRaw}
	case v.Ephemeral != nil:
		p.ephemeral(v, d, dirs, f)
	default:
		label, ok := configuration(v)
		if !ok {
			return invalidf("this kind of volume is not supported; docs/volumes.md lists those that are")
		}
		return p.image(v, d, dirs, label, f.Files)
	}
	return nil
}

// containerDisk gives a disk that is written an overlay, which dies with the pod; one that is only read
// (a CD-ROM) uses the image as it is.
func (p *Plan) containerDisk(v *v1.Volume, d *v1.Disk, dirs Dirs, f Facts) {
	image := domain.Source{Path: f.Path, Format: f.Header.Format, ReadOnly: true, Checksum: f.Checksum}
	if d.CDRom != nil || (d.Disk != nil && d.Disk.ReadOnly) {
		p.Sources[v.Name] = image
		return
	}
	path := dirs.overlay(v.Name)
	p.Steps = append(p.Steps,
		Step{Volume: v.Name, Action: CreateQcow2, Path: path, Size: f.Header.Size, Backing: &image})
	p.Sources[v.Name] = domain.Source{Path: path, Format: FormatQcow2, Backing: &image}
}

// ephemeral plans a claim that the guest only reads, under an overlay with what it writes, which dies with the pod.
func (p *Plan) ephemeral(v *v1.Volume, d *v1.Disk, dirs Dirs, f Facts) {
	image := domain.Source{Path: dirs.claimImage(v.Name), Format: FormatRaw, ReadOnly: true}
	if f.Block {
		image = domain.Source{Path: dirs.BlockDevice(v.Name), Block: true, Format: FormatRaw, ReadOnly: true}
	}
	if d.CDRom != nil || (d.Disk != nil && d.Disk.ReadOnly) {
		p.Sources[v.Name] = image
		return
	}
	path := dirs.overlay(v.Name)
	p.Steps = append(p.Steps, Step{Volume: v.Name, Action: CreateQcow2, Path: path, Size: f.Size, Backing: &image})
	p.Sources[v.Name] = domain.Source{Path: path, Format: FormatQcow2, Backing: &image}
}

// claim uses the claim's device, or its disk.img, made when it is not there. The guest wrote it, so it
// is raw whatever it looks like.
func (p *Plan) claim(vmi *v1.VirtualMachineInstance, v *v1.Volume, dirs Dirs, f Facts) error {
	readOnly := claims.Of(v).ReadOnly
	need := volumemigration.CopySize(vmi, v.Name)
	if f.Block {
		if f.Size < need {
			return tooSmall(v, f.Size, need)
		}
		p.Sources[v.Name] = domain.Source{
			Path: dirs.BlockDevice(v.Name), Block: true, Format: FormatRaw,
			ReadOnly: readOnly,
		}
		return nil
	}
	path := dirs.claimImage(v.Name)
	p.Sources[v.Name] = domain.Source{Path: path, Format: FormatRaw, ReadOnly: readOnly}
	if f.Exists {
		if f.Size < need {
			return tooSmall(v, f.Size, need)
		}
		return nil
	}
	if readOnly {
		return invalidf("claim %s has no %s, and is used read-only", claims.Name(v), ClaimImage)
	}
	size := claimSize(vmi, v.Name, f.Free)
	if size < need {
		return tooSmall(v, size, need)
	}
	if need > 0 {
		size = need // it grows to the claim's once the guest is here
	}
	if size < minClaimImage {
		return invalidf("claim %s has no room for a disk: %d bytes", claims.Name(v), size)
	}
	p.Steps = append(p.Steps, Step{Volume: v.Name, Action: CreateRaw, Path: path, Size: size})
	return nil
}

func tooSmall(v *v1.Volume, has, needs int64) error {
	return invalidf("claim %s has room for a disk of %d bytes, and the disk that is to be copied to it has %d; use a "+
		"larger claim", claims.Name(v), has, needs)
}

const (
	mebibyte      = 1 << 20
	minClaimImage = mebibyte
)

// imageMetadata is the part of a claim's free space that a new disk.img leaves for the map of its own blocks.
const imageMetadata = 128

// claimSize returns the size that a claim's disk.img is made with, or is to grow to: the claim's capacity less the
// share that the file system itself needs (as the VMI's status has it), but no more than what is free or the image has
// already, for a guest must not find its disk full below it; else that alone; whole MiB.
func claimSize(vmi *v1.VirtualMachineInstance, volume string, free int64) int64 {
	size := free
	for _, s := range vmi.Status.VolumeStatus {
		if s.Name != volume || s.PersistentVolumeClaimInfo == nil {
			continue
		}
		info := s.PersistentVolumeClaimInfo
		q, ok := info.Capacity[corev1.ResourceStorage]
		if !ok {
			q, ok = info.Requests[corev1.ResourceStorage]
		}
		if !ok {
			break
		}
		size = q.Value()
		if info.FilesystemOverhead != nil {
			share, err := strconv.ParseFloat(string(*info.FilesystemOverhead), 64)
			if err == nil && share >= 0 && share < 1 {
				size = int64(math.Floor(float64(size) * (1 - share)))
			}
		}
		size = min(size, free-free/imageMetadata)
	}
	return size / mebibyte * mebibyte
}

// diskOf finds the disk that uses a volume.
func diskOf(vmi *v1.VirtualMachineInstance, volume string) *v1.Disk {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if vmi.Spec.Domain.Devices.Disks[i].Name == volume {
			return &vmi.Spec.Domain.Devices.Disks[i]
		}
	}
	return nil
}
