package backup

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

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// File is a file that is read. Anybody may have written it: only what Open has checked is believed.
type File struct {
	Index Index
	// VM is the virtual machine as it was.
	VM   *v1.VirtualMachine
	Size int64
	in   io.ReaderAt
	// starts are where the disks begin.
	starts []int64
	// id is the checksum of the index, which has the others.
	id string
}

// errCut is a file that is shorter than it says.
var errCut = errors.New("the file ends too early: it is not whole")

// Open reads and checks all but the disks.
func Open(in io.ReaderAt, size int64) (*File, error) {
	f := &File{in: in, Size: size}
	r := &walk{section: io.NewSectionReader(in, 0, size), size: size}
	r.tar = tar.NewReader(r.section)
	text, err := r.read(indexFile, maxIndex)
	if err != nil {
		return nil, err
	}
	index, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	f.Index = *index
	f.id = sumOf(text)
	if text, err = r.read(vmFile, f.Index.VM.Bytes); err != nil {
		return nil, err
	}
	if int64(len(text)) != f.Index.VM.Bytes || sumOf(text) != f.Index.VM.SHA256 {
		return nil, altered(vmFile)
	}
	if f.VM, err = parseVM(text); err != nil {
		return nil, err
	}
	for i := range f.Index.Disks {
		disk := &f.Index.Disks[i]
		start, size, err := r.next(disk.File)
		if err != nil {
			return nil, err
		}
		if size != disk.Bytes {
			return nil, altered(disk.File)
		}
		f.starts = append(f.starts, start)
	}
	if text, err = r.read(sumsFile, maxIndex); err != nil {
		return nil, err
	}
	if string(text) != f.Index.sums(f.id) {
		return nil, altered(sumsFile + ", or " + indexFile + ",")
	}
	return f, r.end()
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func altered(member string) error {
	return fmt.Errorf("%s is not as it was written; take the file from where it came from again", member)
}

// walk goes through the members.
type walk struct {
	section *io.SectionReader
	tar     *tar.Reader
	size    int64
}

// next returns where the next member is, which must have this name.
func (r *walk) next(name string) (start, size int64, err error) {
	header, err := r.tar.Next()
	switch {
	case err != nil && name == indexFile:
		return 0, 0, fmt.Errorf("the file is not what `virtctl export` writes: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return 0, 0, fmt.Errorf("%s: %w", name, errCut)
	case err != nil:
		return 0, 0, fmt.Errorf("%s: the file is damaged before it: %w", name, err)
	case header.Name != name || header.Typeflag != tar.TypeReg || header.Format != tar.FormatGNU:
		return 0, 0, fmt.Errorf("the file is not what `virtctl export` writes: it has %q where %s should be",
			header.Name, name)
	}
	if start, err = r.section.Seek(0, io.SeekCurrent); err != nil {
		return 0, 0, err
	}
	if header.Size > r.size-start {
		return 0, 0, fmt.Errorf("%s: %w", name, errCut)
	}
	return start, header.Size, nil
}

// read reads a member of at most so many bytes.
func (r *walk) read(name string, most int64) ([]byte, error) {
	_, size, err := r.next(name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes, which are too many", name, size)
	}
	data, err := io.ReadAll(r.tar)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// end fails unless nothing but tar's end follows.
func (r *walk) end() error {
	at, err := r.section.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	at = (at + blockSize - 1) / blockSize * blockSize
	const end = 2 * blockSize
	last := make([]byte, end)
	switch {
	case r.size < at+end:
		return errCut
	case r.size > at+end:
		return fmt.Errorf("the file has %d bytes more than `virtctl export` writes", r.size-at-end)
	}
	if _, err := r.section.ReadAt(last, at); err != nil {
		return fmt.Errorf("read the end of the file: %w", err)
	}
	if !bytes.Equal(last, make([]byte, end)) {
		return altered("the end of the file")
	}
	return nil
}

// parseVM reads the VM. A field that this virtctl does not know would be lost, and is an error.
func parseVM(text []byte) (*v1.VirtualMachine, error) {
	if unknown := surface.UnknownFields[v1.VirtualMachine](text); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: this virtctl does not know the field %q of a VM; use a newer one", vmFile,
			unknown[0])
	}
	vm := &v1.VirtualMachine{}
	if err := json.Unmarshal(text, vm); err != nil {
		return nil, fmt.Errorf("%s is no VM: %w", vmFile, err)
	}
	if vm.Kind != exports.KindVM || vm.APIVersion != v1.GroupVersion.String() || vm.Spec.Template == nil {
		return nil, fmt.Errorf("%s is no VM: it is a %q of %q", vmFile, vm.Kind, vm.APIVersion)
	}
	return vm, nil
}

// disk returns a disk as it is stored.
func (f *File) disk(i int) *io.SectionReader {
	return io.NewSectionReader(f.in, f.starts[i], f.Index.Disks[i].Bytes)
}

// Verify reads the disks, and fails for one that is not as it was written. show is told how far it is.
func (f *File) Verify(ctx context.Context, show func(name string, done, total int64)) error {
	buffer := make([]byte, 1<<20)
	for i := range f.Index.Disks {
		disk, in, sum := &f.Index.Disks[i], f.disk(i), sha256.New()
		for done := int64(0); ; {
			show(disk.File, done, disk.Bytes)
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := in.Read(buffer)
			_, _ = sum.Write(buffer[:n]) // never fails
			done += int64(n)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", disk.File, err)
			}
		}
		if hex.EncodeToString(sum.Sum(nil)) != disk.SHA256 {
			return altered(disk.File)
		}
	}
	return nil
}
