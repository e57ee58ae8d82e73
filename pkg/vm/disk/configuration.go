package disk

import (
	"fmt"
	"os"
	"path"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// configurationLabel is the label of an image that is given none, as KubeVirt's.
const configurationLabel = "cfgdata"

// configuration returns the label of the image that a ConfigMap, Secret, service account or downward API volume is to
// the guest; ok is false for other volumes.
func configuration(v *v1.Volume) (label string, ok bool) {
	switch {
	case v.ConfigMap != nil:
		label = v.ConfigMap.VolumeLabel
	case v.Secret != nil:
		label = v.Secret.VolumeLabel
	case v.DownwardAPI != nil:
		label = v.DownwardAPI.VolumeLabel
	case v.ServiceAccount == nil:
		return "", false
	}
	if label == "" {
		label = configurationLabel
	}
	return label, true
}

// lookConfiguration reads the files that the kubelet made of a volume.
func lookConfiguration(v *v1.Volume, dirs Dirs) (Facts, error) {
	files := map[string][]byte{}
	if err := readFiles(path.Join(dirs.Secrets, v.Name), "", files); err != nil {
		return Facts{}, err
	}
	return Facts{Files: files}, nil
}

// readFiles reads what is below dir into files, by path from there. What it reads is the kubelet's, whose links it
// follows; the kubelet's own bookkeeping (..data) it leaves out.
func readFiles(dir, prefix string, files map[string][]byte) error {
	if strings.Count(prefix, "/") >= maxIsoDepth {
		return invalidf("file name %q has more than %d parts", prefix, maxIsoDepth)
	}
	entries, err := os.ReadDir(path.Join(dir, prefix))
	if err != nil {
		return fmt.Errorf("read the files: %w", err)
	}
	for _, entry := range entries {
		name := prefix + entry.Name()
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		info, err := os.Stat(path.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		switch {
		case info.IsDir():
			if err := readFiles(dir, name+"/", files); err != nil {
				return err
			}
			continue
		case !info.Mode().IsRegular():
			return invalidf("%s is neither a file nor a directory", name)
		case len(files) == maxFiles:
			return invalidf("there are more than %d files, which is the most on one disk", maxFiles)
		}
		if files[name], err = readBounded(path.Join(dir, name)); err != nil {
			return fmt.Errorf("read the file %s: %w", name, err)
		}
	}
	return nil
}

// image plans an ISO image of a volume's files.
func (p *Plan) image(v *v1.Volume, d *v1.Disk, dirs Dirs, label string, files map[string][]byte) error {
	data, err := Image(label, files)
	if err != nil {
		return err
	}
	name := dirs.cloudInit(v.Name)
	p.Steps = append(p.Steps, Step{Volume: v.Name, Action: WriteFile, Path: name, Data: data})
	// QEMU has no read-only sata disks; elsewhere the guest need not write what is made anew for it.
	readOnly := d.Disk == nil || d.Disk.Bus != v1.DiskBusSATA
	p.Sources[v.Name] = domain.Source{Path: name, Format: FormatRaw, ReadOnly: readOnly}
	return nil
}
