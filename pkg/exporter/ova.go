package exporter

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/ovf"
)

// An OVA is a tar of the VM's descriptor, its manifest and its disks, in this order, which DSP0243 has as the first of
// two: who reads it as it comes can verify each disk at its end. The checksums are learned as the disks are measured.

const (
	tarBlock = 512
	// maxOVA bounds the disks of an OVA, bytes.
	maxOVA = 4 << 40
	// maxUSTAR is the size of the largest member for which the header of DSP0243's tar has room.
	maxUSTAR = 1<<33 - 1
)

// errNoVM is an export of whose VM too little is known.
var errNoVM = errors.New("the VM's instance type or preference is not there any more, so nobody knows its hardware: " +
	"`virtctl vmexport download --format=qcow2` downloads its disks")

// machine is the VM of an export, and what of it an OVA has.
type machine struct {
	*v1.VirtualMachine
	volumes []ovf.Volume
	// left says what it has not.
	left []string
}

// machine reads the VM from its manifests.
func (h *handler) machine() (*machine, error) {
	data, err := readBelow(h.Manifests, names.ExportManifestsJSON)
	if err != nil {
		return nil, fmt.Errorf("read the VM's manifest: %w", err)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the VM's manifest: %w", err)
	}
	for _, raw := range list.Items {
		vm := &v1.VirtualMachine{}
		if err := json.Unmarshal(raw, vm); err != nil || vm.Kind != exports.KindVM || vm.Spec.Template == nil {
			continue // another object
		}
		if vm.Spec.Instancetype != nil || vm.Spec.Preference != nil {
			return nil, errNoVM
		}
		m := &machine{VirtualMachine: vm}
		for _, volume := range ovf.Volumes(&vm.Spec.Template.Spec) {
			if of, has := h.volumes[volume.Claim]; has && of.kind != tree {
				m.volumes = append(m.volumes, volume)
			}
		}
		m.left = ovf.NotIncluded(&vm.Spec.Template.Spec, m.volumes)
		return m, nil
	}
	return nil, errors.New("the manifests have no VM")
}

// base begins the names of the files.
func (m *machine) base() string { return names.Shorten(m.Name, names.MaxLabel) }

// file is the name of a disk's file.
func (m *machine) file(i int) string {
	suffix := "vmdk"
	if m.volumes[i].CDROM {
		suffix = "iso"
	}
	return fmt.Sprintf("%s-disk%d.%s", m.base(), i+1, suffix)
}

// measured is what is known of an OVA once its disks were read.
type measured struct {
	// layouts are those of the VMDKs; nil for what is in a CD drive, which is as it is.
	layouts []*vmdkLayout
	// heads are what is before each disk, and the last of them what is after all: headers, the descriptor, the
	// manifest, and what fills up blocks.
	heads [][]byte
	// tag is the ETag: of the same content wherever it is served.
	tag string
}

// weight implements sized.
func (o *measured) weight() (sum int64) {
	for _, layout := range o.layouts {
		if layout != nil {
			sum += layout.weight()
		}
	}
	return sum
}

// mostMeasured returns how many bytes the layouts of an OVA of these disks may have.
func (m *machine) mostMeasured(images []*image) (most int64, err error) {
	total := int64(0)
	for n, i := range images {
		total += i.size
		if !m.volumes[n].CDROM {
			most += mostOfVMDK(i.size)
		}
	}
	if total > maxOVA {
		return 0, errTooLargeOVA
	}
	return most, nil
}

// measureOVA reads the disks.
func (m *machine) measureOVA(ctx context.Context, images []*image, created time.Time) (*measured, error) {
	out := &measured{}
	var disks []ovf.Disk
	sums := []ovf.Sum{{File: m.base() + ".ovf"}}
	for n, i := range images {
		disk := ovf.Disk{Volume: m.volumes[n].Name, File: m.file(n), Bytes: i.size, Capacity: i.size}
		sum, layout := sha256.New(), (*vmdkLayout)(nil)
		var err error
		if m.volumes[n].CDROM {
			_, err = io.Copy(sum, &interruptible{ctx, io.NewSectionReader(i.File, 0, i.size)})
		} else if layout, err = measureVMDK(ctx, i.File, i.size, disk.File, sum); err == nil {
			disk.Bytes, disk.Capacity = layout.end(), layout.size
		}
		if err == nil {
			err = i.unchanged()
		}
		if err != nil {
			return nil, err
		}
		out.layouts, disks = append(out.layouts, layout), append(disks, disk)
		sums = append(sums, ovf.Sum{File: disk.File, SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	text, err := ovf.Describe(m.VirtualMachine, disks, ovf.MACs(m.VirtualMachine))
	if err != nil {
		return nil, err
	}
	of := sha256.Sum256(text)
	sums[0].SHA256 = hex.EncodeToString(of[:])
	return out, out.pack(m.base(), text, ovf.Manifest(sums), disks, created)
}

// pack makes the headers of the archive.
func (o *measured) pack(base string, text, manifest []byte, disks []ovf.Disk, created time.Time) error {
	var head bytes.Buffer
	add := func(name string, size int64) error {
		format := tar.FormatUSTAR
		if size > maxUSTAR {
			format = tar.FormatGNU // as other hypervisors write it
		}
		err := tar.NewWriter(&head).WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: created, Format: format,
		})
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		return nil
	}
	fill := func(size int64) { head.Write(make([]byte, up(size, tarBlock)*tarBlock-size)) }
	for _, member := range []struct {
		suffix string
		data   []byte
	}{{".ovf", text}, {".mf", manifest}} {
		if err := add(base+member.suffix, int64(len(member.data))); err != nil {
			return err
		}
		head.Write(member.data)
		fill(int64(len(member.data)))
	}
	for i := range disks {
		if err := add(disks[i].File, disks[i].Bytes); err != nil {
			return err
		}
		o.heads = append(o.heads, bytes.Clone(head.Bytes()))
		head.Reset()
		fill(disks[i].Bytes)
	}
	head.Write(make([]byte, 2*tarBlock))
	o.heads = append(o.heads, head.Bytes())
	sum := sha256.New()
	for _, head := range o.heads {
		_, _ = sum.Write(head) // never fails
	}
	o.tag = fmt.Sprintf(`"ova-%x"`, sum.Sum(nil)[:16])
	return nil
}

// interruptible is a reader that ends with a request.
type interruptible struct {
	ctx context.Context //nolint:containedctx // a reader has no other way to be interrupted
	io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.Reader.Read(p)
}
