package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

const (
	// proxmoxSuffix is that of Proxmox's text, proxmoxExtracted its name where `vma extract` has written it.
	proxmoxSuffix    = ".conf"
	proxmoxExtracted = "qemu-server.conf"
)

// proxmoxText reads Proxmox's text, whose disks lie beside it. No link leads out of there.
func (f *File) proxmoxText(directory, name string) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	f.closers = append(f.closers, root)
	find := func(name string) (content, error) {
		in, err := root.Open(name)
		if err != nil {
			return content{}, err
		}
		return f.opened(name, in)
	}
	text, err := textOf(name, maxDescriptor, find)
	if err != nil {
		return err
	}
	return f.proxmox(name, text, func(d *proxmoxDrive) (string, error) {
		for _, candidate := range d.candidates() {
			if _, err := root.Stat(candidate); err == nil {
				f.Notes = append(f.Notes, "a disk is read from "+filepath.Join(directory, candidate))
				return candidate, nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		return "", fs.ErrNotExist
	}, find)
}

// proxmox makes a machine of Proxmox's text. name returns the name of a drive's file, and find opens it.
func (f *File) proxmox(
	described string, text []byte, name func(*proxmoxDrive) (string, error), find func(string) (content, error),
) error {
	machine, drives, err := readProxmox(text)
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", described, err)
	}
	f.descriptor, f.described = text, described
	if machine.Name == "" {
		machine.Name = strings.TrimSuffix(described, filepath.Ext(described))
	}
	kept := machine.Disks[:0]
	for i := range drives {
		d, disk := &drives[i], machine.Disks[i]
		err = nil
		if d.volume != "" {
			disk.File, err = name(d)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && disk.CDROM:
			machine.absent("what is in %s, %s: it is empty", d.key, d.volume)
		case errors.Is(err, fs.ErrNotExist) && d.left:
			machine.absent("%s, %s, which its backups leave out", d.key, d.volume)
			continue
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("disk %s (%s) is not there: copy it beside the text, as disk-drive-%s.raw, or with the "+
				"name that it has on its storage and the suffix .raw or .qcow2", d.key, d.volume, d.key)
		case err != nil:
			return err
		}
		disk.Format = formatOfName(disk.File)
		kept = append(kept, disk)
	}
	machine.Disks = kept
	machine.name()
	f.Machine = machine
	return f.attach(find)
}

// formatOfName is the format of an image by its name: what a guest has written does not make it another.
func formatOfName(name string) imageformat.Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".qcow2":
		return imageformat.QCOW2
	case ".vmdk":
		return imageformat.VMDK
	}
	return imageformat.Raw
}

// archived reads an archive of vzdump.
func (f *File) archived(path string, whole content) error {
	archive, err := readVMA(whole)
	if err != nil {
		return err
	}
	text, err := archive.text()
	if err != nil {
		return err
	}
	return f.proxmox(filepath.Base(path), bytes.Clone(text), func(d *proxmoxDrive) (string, error) {
		if archive.devices["drive-"+d.key] == nil {
			return "", fs.ErrNotExist
		}
		return "drive-" + d.key, nil
	}, func(name string) (content, error) {
		disk := archive.devices[name]
		return content{disk, disk.size}, nil
	})
}

// text returns the text of the archive's VM: qemu-server.conf, as vzdump names it, or the only one of its kind.
func (a *vma) text() ([]byte, error) {
	if text, has := a.configs[proxmoxExtracted]; has {
		return text, nil
	}
	var texts []string
	for name := range a.configs {
		if strings.HasSuffix(name, proxmoxSuffix) {
			texts = append(texts, name)
		}
	}
	switch len(texts) {
	case 0:
		return nil, errors.New("the archive has no text of a VM: it is no backup of one")
	case 1:
		return a.configs[texts[0]], nil
	}
	slices.Sort(texts)
	return nil, fmt.Errorf("the archive has the texts of several VMs, %s, and none is %s", strings.Join(texts, ", "),
		proxmoxExtracted)
}
