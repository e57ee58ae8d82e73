// Package foreign makes a VM of what another hypervisor has written: an OVA or OVF (VMware, VirtualBox, virt-v2v), the
// XML of a libvirt domain with its disks, a VM of Proxmox VE (vzdump's archive, or its text with its disks), a backup
// of Incus, or a single disk image. Anybody may have written it.
//
//	FILE ─► Open: descriptor (ovf.go, domain.go, proxmox.go, incus.go) ─► Machine ─► Make (vm.go): VM and claims
//	        disks (archive.go, image.go) ─► Verify (manifest.go) ─► backup.Import: uploads
//
// Machine is the hardware in the words of this package; what has no counterpart is in its Absent, by name. The disks
// are read where they lie: in the archive, beside the descriptor, or where a domain has them.
package foreign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// File is what was opened. Close closes it.
type File struct {
	// Machine is the VM that is in it.
	Machine *Machine
	// Notes are what a user should know of the file.
	Notes []string
	// Bytes is the size of the file, without disks that are other files; Changed is when it was changed last.
	Bytes   int64
	Changed time.Time

	images   []image
	manifest *manifest
	// descriptor is the text that the machine was read from, and described its name.
	descriptor []byte
	described  string
	others     map[string]content
	closers    []io.Closer
}

// content is a file's bytes.
type content struct {
	io.ReaderAt
	size int64
}

// image is what goes to a claim.
type image struct {
	content
	// file is its name; empty for a disk that is blank. format is empty when it is to be found out.
	file   string
	format imageformat.Format
	// disk is the size of the disk in it, bytes, and sha256 its checksum, once Verify has read it.
	disk   int64
	sha256 string
	// staged is what the image itself takes on the claim until it is converted, bytes; 0 for a raw one.
	staged int64
}

// needs returns the room that an image needs on its claim, bytes: that of its disk and, until it is converted, its own.
func (i *image) needs() int64 {
	return i.disk + i.staged
}

// UnknownError says that a file is nothing that is known.
type UnknownError struct{}

func (*UnknownError) Error() string {
	return "the file is neither what `virtctl export` writes, nor an OVA, an OVF, the XML of a libvirt domain, a VM " +
		"of Proxmox (.vma, or .conf with its disks), a backup of Incus (.tar), or a disk image (vmdk, vhdx, vhd, " +
		"qcow2; raw with the suffix .img, .raw or .iso)"
}

// descriptor limits.
const (
	maxDescriptor = 4 << 20
	maxManifest   = 1 << 20
)

// Open opens the file or directory at path and reads what describes the VM.
func Open(path string) (*File, error) {
	f := &File{}
	if err := f.open(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) open(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f.Changed = info.ModTime().UTC()
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, proxmoxExtracted)); err == nil {
			return f.proxmoxText(path, proxmoxExtracted)
		}
		name, err := descriptorIn(path)
		if err != nil {
			return err
		}
		return f.directory(path, name)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	f.closers = append(f.closers, in)
	f.Bytes = info.Size()
	whole := content{in, info.Size()}
	head := make([]byte, min(whole.size, imageformat.HeadSize))
	if _, err := io.ReadFull(io.NewSectionReader(in, 0, whole.size), head); err != nil {
		return fmt.Errorf("read its beginning: %w", err)
	}
	switch {
	case isTar(head):
		return f.archive(whole)
	case isVMA(head):
		return f.archived(path, whole)
	case strings.EqualFold(filepath.Ext(path), proxmoxSuffix):
		return f.proxmoxText(filepath.Dir(path), filepath.Base(path))
	case isXML(head):
		return f.text(path, whole)
	}
	return f.single(path, whole, head)
}

// isXML reports whether a file begins as XML does, and not as the descriptor of a VMDK or a script.
func isXML(head []byte) bool {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("<"))
}

// text reads a descriptor that is a file of its own: an OVF, or a domain.
func (f *File) text(path string, whole content) error {
	text, err := whole.read(maxDescriptor)
	if err != nil {
		return err
	}
	root, err := parseTree(text)
	if err != nil {
		return err
	}
	switch root.name {
	case "Envelope":
		return f.directory(filepath.Dir(path), filepath.Base(path))
	case "domain":
		f.descriptor, f.described = text, filepath.Base(path)
		if f.Machine, err = readDomain(root); err != nil {
			return err
		}
		return f.local(filepath.Dir(path))
	}
	return fmt.Errorf("the XML is neither an OVF nor a libvirt domain: its root is %q", root.name)
}

// read reads a file that has at most so many bytes.
func (c content) read(most int64) ([]byte, error) {
	if c.size > most {
		return nil, fmt.Errorf("it has %d bytes, which are more than such a text has", c.size)
	}
	return io.ReadAll(io.NewSectionReader(c.ReaderAt, 0, c.size))
}

// add adds the image of a disk, which is in a file, and looks at it.
func (f *File) add(disk *Disk, file string, in content) error {
	format := disk.Format
	checked := upload.Image{ReaderAt: in, Size: in.size, Format: format}
	found, err := checked.Check()
	if err != nil {
		return fmt.Errorf("disk %s: %w", file, err)
	}
	if found.VirtualSize == 0 { // it is compressed
		found.VirtualSize = disk.Capacity
	}
	if found.VirtualSize == 0 {
		return fmt.Errorf("disk %s: it is compressed, so how large it is cannot be seen; decompress it first", file)
	}
	of := image{content: in, file: file, format: format, disk: found.VirtualSize}
	if found.Format != imageformat.Raw {
		of.staged = in.size
	}
	f.images = append(f.images, of)
	return nil
}

// blank adds a disk that has nothing on it.
func (f *File) blank(disk *Disk) error {
	if disk.Capacity <= 0 {
		return fmt.Errorf("%s has neither a file nor a size", disk.Label)
	}
	f.images = append(f.images, image{disk: disk.Capacity})
	return nil
}

// attach finds the image of each disk.
func (f *File) attach(find func(name string) (content, error)) error {
	for i := range f.Machine.Disks {
		disk := &f.Machine.Disks[i]
		switch {
		case disk.File == "" && disk.CDROM: // an empty drive
		case disk.File == "":
			if err := f.blank(disk); err != nil {
				return err
			}
		default:
			in, err := find(disk.File)
			if err == nil {
				err = f.add(disk, disk.File, in)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the file and its disks.
func (f *File) Close() error {
	var all error
	for _, closer := range f.closers {
		all = errors.Join(all, closer.Close())
	}
	return all
}

// id returns what tells the file from others without reading all of it: claims of an import that did not end are known
// by it.
func (f *File) id() (string, error) {
	sum := sha256.New()
	_, _ = sum.Write(f.descriptor) // never fails
	for i := range f.images {
		in := &f.images[i]
		if in.file == "" {
			fmt.Fprintf(sum, " %d", in.disk)
			continue
		}
		of, err := upload.Image{ReaderAt: in.ReaderAt, Size: in.size, Format: in.format}.ID()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, " %s", of)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Payloads returns the disks as they are uploaded, in the order of the claims.
func (f *File) Payloads(made *backup.Made) []backup.Payload {
	var out []backup.Payload
	for i, disk := range f.Machine.withClaims() {
		in := &f.images[i]
		out = append(out, backup.Payload{Volume: disk.volume, File: in.file, SHA256: in.sha256, Image: upload.Image{
			ReaderAt: in.ReaderAt, Size: in.size, Format: in.format,
		}})
	}
	return out[:len(made.Claims)]
}

// NewReport returns the report of an import.
func (f *File) NewReport(path string, made *backup.Made, took time.Duration) *backup.Report {
	index := &backup.Index{Created: f.Changed}
	for i, disk := range f.Machine.withClaims() {
		in := &f.images[i]
		index.Disks = append(index.Disks, backup.Disk{
			Member: backup.Member{Bytes: in.size, SHA256: in.sha256}, Volume: disk.volume, DiskSize: in.disk,
		})
	}
	return backup.NewReport(path, f.Bytes, index, made, took)
}
