package foreign

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxMembers bounds the members of an OVA.
	maxMembers = 1 << 10
	// maxPath bounds the name of a file in an OVF, bytes.
	maxPath = 1 << 10

	tarMagicAt, tarMagic = 257, "ustar"
)

// isTar reports whether a file begins as a tar archive does.
func isTar(head []byte) bool {
	return len(head) >= tarMagicAt+len(tarMagic) && string(head[tarMagicAt:tarMagicAt+len(tarMagic)]) == tarMagic
}

// checkPath refuses the name of a file that is not below the OVF.
func checkPath(name string) error {
	if strings.Contains(name, "://") {
		return fmt.Errorf("file %s is elsewhere, and nothing is downloaded: download it first, and name it in the OVF",
			name)
	}
	if name == "." || len(name) > maxPath || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") ||
		!filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("file %q leads out of the archive, or is no name of a file", name)
	}
	return nil
}

// archive reads an OVA: a tar with an OVF, its disks, and most often a manifest. The disks stay where they are in it,
// in whatever order.
func (f *File) archive(whole content) error {
	members, err := readTar(whole)
	if err != nil {
		return err
	}
	if _, has := members[incusIndex]; has {
		return f.incusBackup(members)
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	descriptor, err := descriptorOf(names)
	if err != nil {
		return err
	}
	return f.pack(descriptor, func(name string) (content, error) {
		in, has := members[name]
		if !has {
			return content{}, fmt.Errorf("file %s: %w", name, fs.ErrNotExist)
		}
		return in, nil
	})
}

// readTar finds the members of an archive.
func readTar(whole content) (map[string]content, error) {
	section := io.NewSectionReader(whole, 0, whole.size)
	in := tar.NewReader(section)
	members := map[string]content{}
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return members, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errCut
		case err != nil:
			return nil, fmt.Errorf("the archive is damaged: %w", err)
		case header.Typeflag == tar.TypeDir:
			continue
		case len(members) == maxMembers:
			return nil, fmt.Errorf("the archive has more than %d members", maxMembers)
		}
		name := path.Clean(strings.TrimPrefix(header.Name, "./"))
		if header.Typeflag == tar.TypeSymlink && strings.HasPrefix(name, incusDirectory) {
			continue // of the VM's own files, which nobody looks at
		}
		if err := checkMember(header, name); err != nil {
			return nil, err
		}
		if _, has := members[name]; has {
			return nil, fmt.Errorf("%s is in the archive twice", name)
		}
		at, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if header.Size > whole.size-at {
			return nil, fmt.Errorf("%s: %w", name, errCut)
		}
		members[name] = content{io.NewSectionReader(whole, at, header.Size), header.Size}
	}
}

var errCut = errors.New("the file ends too early: it is not whole")

// checkMember refuses a member that is no file whose bytes follow its header, or that leads out of the archive.
func checkMember(header *tar.Header, name string) error {
	sparse := header.Typeflag == tar.TypeGNUSparse
	for key := range header.PAXRecords {
		sparse = sparse || strings.HasPrefix(key, "GNU.sparse.")
	}
	switch {
	case sparse:
		return fmt.Errorf("%s is sparse in the archive, which no OVA has: pack it without --sparse", name)
	case header.Typeflag != tar.TypeReg:
		return fmt.Errorf("%s is not a file, but a link or a device, which no OVA has", name)
	}
	return checkPath(name)
}

// descriptorOf returns the OVF among the files of a package.
func descriptorOf(names []string) (string, error) {
	var found []string
	for _, name := range names {
		if strings.EqualFold(path.Ext(name), ".ovf") && !strings.Contains(name, "/") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", errors.New("there is no .ovf in it, so it is no OVA: disks alone do not say which VM they are of")
	}
	return "", fmt.Errorf("it has several OVFs: %s; name one that is unpacked", strings.Join(found, ", "))
}

// descriptorIn returns the OVF in a directory.
func descriptorIn(directory string) (string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return descriptorOf(names)
}

// directory reads an OVF whose files lie beside it or below. No link leads out of there.
func (f *File) directory(directory, descriptor string) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	f.closers = append(f.closers, root)
	return f.pack(descriptor, func(name string) (content, error) {
		in, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return content{}, err
		}
		return f.opened(name, in)
	})
}

// opened takes a file that was opened; only a regular one.
func (f *File) opened(name string, in *os.File) (content, error) {
	f.closers = append(f.closers, in)
	info, err := in.Stat()
	if err != nil {
		return content{}, err
	}
	if !info.Mode().IsRegular() {
		return content{}, fmt.Errorf("%s is not a regular file", name)
	}
	return content{in, info.Size()}, nil
}

// pack reads an OVF, its manifest, and looks at its disks. find opens one of its files.
func (f *File) pack(descriptor string, find func(string) (content, error)) error {
	text, err := textOf(descriptor, maxDescriptor, find)
	if err != nil {
		return err
	}
	f.descriptor, f.described = text, descriptor
	root, err := parseTree(text)
	if err != nil {
		return fmt.Errorf("%s: %w", descriptor, err)
	}
	if f.Machine, err = readOVF(root); err != nil {
		return fmt.Errorf("%s: %w", descriptor, err)
	}
	if err := f.readManifest(find); err != nil {
		return err
	}
	if f.Bytes == 0 {
		f.Bytes = int64(len(text))
	}
	return f.attach(find)
}

// readManifest reads the checksums, if there are any, and verifies the OVF's.
func (f *File) readManifest(find func(string) (content, error)) error {
	base := strings.TrimSuffix(f.described, path.Ext(f.described))
	text, err := textOf(base+".mf", maxManifest, find)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Notes = append(f.Notes, "the OVF has no manifest ("+base+".mf): its disks cannot be verified")
		return nil
	case err != nil:
		return err
	}
	if f.manifest, err = parseManifest(text); err != nil {
		return fmt.Errorf("%s.mf: %w", base, err)
	}
	if _, err := find(base + ".cert"); err == nil {
		f.Notes = append(f.Notes, "the signature ("+base+".cert) is not verified, only the checksums")
	}
	if err := f.manifest.verify(f.described, bytes.NewReader(f.descriptor)); err != nil {
		return err
	}
	f.others = map[string]content{}
	for name := range f.manifest.sums {
		in, err := find(name)
		if err != nil {
			return fmt.Errorf("%s.mf lists %s: %w", base, name, err)
		}
		f.others[name] = in
	}
	return nil
}

func textOf(name string, most int64, find func(string) (content, error)) ([]byte, error) {
	in, err := find(name)
	if err != nil {
		return nil, err
	}
	text, err := in.read(most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// local opens the disks of a domain: where it says that they are, or beside the XML.
func (f *File) local(beside string) error {
	return f.attach(func(name string) (content, error) {
		in, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !filepath.IsAbs(name) {
			if err == nil {
				_ = in.Close() // it was only looked at
			}
			other := filepath.Join(beside, filepath.Base(name))
			if in, err = os.Open(other); errors.Is(err, fs.ErrNotExist) {
				return content{}, fmt.Errorf("%s is not here, nor %s beside the XML: copy it there", name, other)
			}
			name = other
		}
		if err != nil {
			return content{}, err
		}
		f.Notes = append(f.Notes, "a disk is read from "+name)
		return f.opened(name, in)
	})
}
