package backup

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The names of a file's members. Each disk is a member between the VM and the checksums.
const (
	indexFile = "index.json"
	vmFile    = "vm.json"
	sumsFile  = "SHA256SUMS"

	diskDirectory, diskSuffix = "disks/", ".img.gz"
)

// Version and Kind say what an index is. Later versions of virtkit may add fields, which this one passes over; a file
// that this one must not read has another version.
const (
	Version = "backup.virtkit.io/v1"
	Kind    = "Backup"
)

const (
	// maxIndex and maxVM bound two members, bytes; the API server takes no larger VM.
	maxIndex = 1 << 20
	maxVM    = 4 << 20
	// maxDisks bounds the disks of a VM.
	maxDisks = 256
	// maxDisk bounds one, bytes.
	maxDisk = 1 << 50
)

// FormatRaw and CompressionGzip are how each disk is stored.
const (
	FormatRaw       = "raw"
	CompressionGzip = "gzip"
)

// Index is the first member of a file: what else is in it.
type Index struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Created is when the file was begun.
	Created time.Time `json:"created"`
	// Namespace and Name are those of the VM when it was exported.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Snapshot is the snapshot that the disks are of, also one that was made for the export; empty for those of a
	// stopped VM. Indications are the snapshot's.
	Snapshot    string   `json:"snapshot,omitempty"`
	Indications []string `json:"indications,omitempty"`
	// VM is the member with the VM, Disks those with its disks.
	VM    Member `json:"vm"`
	Disks []Disk `json:"disks"`
	// NotIncluded says what the VM has and the file has not.
	NotIncluded []string `json:"notIncluded,omitempty"`
}

// Member is a member of the file.
type Member struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// SHA256 is of these bytes, hexadecimal.
	SHA256 string `json:"sha256"`
}

// Disk is a disk, and the claim that it was on.
type Disk struct {
	Member `json:",inline"`
	// Volume is the VM's name for it, Claim the name that the claim had.
	Volume string `json:"volume"`
	Claim  string `json:"claim"`
	// Format is raw and Compression gzip.
	Format      string `json:"format"`
	Compression string `json:"compression"`
	// DiskSize is the size of the disk without compression, bytes.
	DiskSize int64 `json:"diskSize"`
	// ClaimSize, AccessModes, VolumeMode and StorageClass are the claim's.
	ClaimSize    string   `json:"claimSize"`
	AccessModes  []string `json:"accessModes"`
	VolumeMode   string   `json:"volumeMode"`
	StorageClass string   `json:"storageClass,omitempty"`
}

// diskFile returns the name of the member with a volume's disk.
func diskFile(volume string) string { return diskDirectory + volume + diskSuffix }

// parseIndex reads an index from a file that anybody may have made.
func parseIndex(data []byte) (*Index, error) {
	index := &Index{}
	if err := json.Unmarshal(data, index); err != nil {
		return nil, fmt.Errorf("%s is not what `virtctl export` writes: %w", indexFile, err)
	}
	if index.Kind != Kind || !strings.HasPrefix(index.APIVersion, "backup.virtkit.io/") {
		return nil, fmt.Errorf("%s is not what `virtctl export` writes: its kind is %q, of %q", indexFile, index.Kind,
			index.APIVersion)
	}
	if index.APIVersion != Version {
		return nil, fmt.Errorf("the file has version %q, and this virtctl reads %s; use a newer one", index.APIVersion,
			Version)
	}
	if err := index.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return index, nil
}

// check returns what is wrong with an index.
func (x *Index) check() error {
	switch {
	case len(validation.IsDNS1123Subdomain(x.Name)) > 0:
		return fmt.Errorf("name: %q is no name of a VM", x.Name)
	case len(validation.IsDNS1123Label(x.Namespace)) > 0:
		return fmt.Errorf("namespace: %q is no name of a namespace", x.Namespace)
	case x.VM.File != vmFile:
		return fmt.Errorf("vm.file: %q is not %s", x.VM.File, vmFile)
	case x.VM.Bytes > maxVM:
		return fmt.Errorf("vm.bytes: %d are more than a VM has", x.VM.Bytes)
	case len(x.Disks) > maxDisks:
		return fmt.Errorf("disks: %d are more than the %d that a file may have", len(x.Disks), maxDisks)
	}
	if err := x.VM.check(); err != nil {
		return fmt.Errorf("vm.%w", err)
	}
	for i := range x.Disks {
		disk := &x.Disks[i]
		if err := disk.check(); err != nil {
			return fmt.Errorf("disks[%d].%w", i, err)
		}
		for _, other := range x.Disks[:i] {
			if other.Volume == disk.Volume || other.Claim == disk.Claim {
				return fmt.Errorf("disks[%d]: volume %s, claim %s, is there twice", i, disk.Volume, disk.Claim)
			}
		}
	}
	return nil
}

func (m *Member) check() error {
	if m.Bytes <= 0 || m.Bytes > maxDisk {
		return fmt.Errorf("bytes: %d is no size of a member", m.Bytes)
	}
	if sum, err := hex.DecodeString(m.SHA256); err != nil || len(sum) != 32 || strings.ToLower(m.SHA256) != m.SHA256 {
		return fmt.Errorf("sha256: %q is no checksum", m.SHA256)
	}
	return nil
}

var accessModes = []corev1.PersistentVolumeAccessMode{
	corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadOnlyMany, corev1.ReadWriteOncePod,
}

// quantity is a size without an exponent, which may make it too large to reckon with.
var quantity = regexp.MustCompile(`^[1-9][0-9]{0,18}(m|[kMGTP]|[KMGTP]i)?$`)

// size returns the size of the claim, or nil when it is none.
func (d *Disk) size() *resource.Quantity {
	if !quantity.MatchString(d.ClaimSize) {
		return nil
	}
	size, err := resource.ParseQuantity(d.ClaimSize)
	if err != nil || size.Sign() <= 0 || size.CmpInt64(maxDisk) > 0 {
		return nil
	}
	return &size
}

func (d *Disk) check() error {
	if err := d.Member.check(); err != nil {
		return err
	}
	switch {
	case d.size() == nil:
		return fmt.Errorf("claimSize: %q is no size of a claim", d.ClaimSize)
	case len(validation.IsDNS1123Label(d.Volume)) > 0:
		return fmt.Errorf("volume: %q is no name of a volume", d.Volume)
	case d.File != diskFile(d.Volume):
		return fmt.Errorf("file: %q is not %s", d.File, diskFile(d.Volume))
	case len(validation.IsDNS1123Subdomain(d.Claim)) > 0:
		return fmt.Errorf("claim: %q is no name of a claim", d.Claim)
	case d.Format != FormatRaw || d.Compression != CompressionGzip:
		return fmt.Errorf("format: %q, compression: %q are not %s and %s", d.Format, d.Compression, FormatRaw,
			CompressionGzip)
	case d.DiskSize <= 0 || d.DiskSize > maxDisk:
		return fmt.Errorf("diskSize: %d is no size of a disk", d.DiskSize)
	case d.VolumeMode != string(corev1.PersistentVolumeFilesystem) &&
		d.VolumeMode != string(corev1.PersistentVolumeBlock):
		return fmt.Errorf("volumeMode: %q is not one", d.VolumeMode)
	case len(d.AccessModes) == 0 || len(d.AccessModes) > len(accessModes):
		return fmt.Errorf("accessModes: a claim does not have %d", len(d.AccessModes))
	case d.StorageClass != "" && len(validation.IsDNS1123Subdomain(d.StorageClass)) > 0:
		return fmt.Errorf("storageClass: %q is no name of one", d.StorageClass)
	}
	for _, mode := range d.AccessModes {
		if !slices.Contains(accessModes, corev1.PersistentVolumeAccessMode(mode)) {
			return fmt.Errorf("accessModes: %q is not one", mode)
		}
	}
	return nil
}

// members returns the members that have a checksum, but the index, in their order.
func (x *Index) members() []*Member {
	out := []*Member{&x.VM}
	for i := range x.Disks {
		out = append(out, &x.Disks[i].Member)
	}
	return out
}

// sums returns the member with the checksums of all others, as sha256sum writes it.
func (x *Index) sums(ofIndex string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s  %s\n", ofIndex, indexFile)
	for _, member := range x.members() {
		fmt.Fprintf(&out, "%s  %s\n", member.SHA256, member.File)
	}
	return out.String()
}
