package podfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// cdiDirs are the directories in which the node describes devices that are known by a name (Container Device
// Interface).
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

const (
	// maxDescription bounds what is read of one description, bytes.
	maxDescription = 16 << 20
	// maxDescriptions bounds how many there are in a directory.
	maxDescriptions = 1024
)

// cdiEdits holds the changes to a container that gets a device.
type cdiEdits struct {
	DeviceNodes []struct{ Path, HostPath, Permissions string }
}

// cdiDescription is a file that describes devices of a kind; see the CDI specification.
type cdiDescription struct {
	Kind    string
	Devices []struct {
		Name           string
		ContainerEdits cdiEdits
	}
	ContainerEdits cdiEdits
}

// cdiGrants returns the device nodes of devices that are known by names, KIND=NAME.
func cdiGrants(node *Process, devices []string) ([]grant, error) {
	if len(devices) == 0 {
		return nil, nil
	}
	var grants []grant
	missing := slices.Clone(devices)
	for _, dir := range cdiDirs {
		descriptions, err := cdiDescriptions(node, dir)
		if err != nil {
			return nil, err
		}
		for _, d := range descriptions {
			for _, device := range d.Devices {
				at := slices.Index(missing, d.Kind+"="+device.Name)
				if at < 0 {
					continue
				}
				missing = slices.Delete(missing, at, at+1)
				for _, n := range slices.Concat(d.ContainerEdits.DeviceNodes, device.ContainerEdits.DeviceNodes) {
					from := n.HostPath
					if from == "" {
						from = n.Path
					}
					grants = append(grants, grant{from, accessOf(n.Permissions)})
				}
			}
		}
	}
	if len(missing) > 0 {
		return nil,
			fmt.Errorf("the node does not describe the device %s in %s", missing[0], strings.Join(cdiDirs, " or "))
	}
	return grants, nil
}

func cdiDescriptions(node *Process, dir string) ([]cdiDescription, error) {
	found, err := node.find(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer found.Close()
	entries, err := found.List(maxDescriptions)
	if err != nil {
		return nil, err
	}
	var out []cdiDescription
	for _, entry := range entries {
		switch path.Ext(entry.Name()) {
		case ".json", ".yaml", ".yml":
		default:
			continue
		}
		d, err := readDescription(node, path.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func readDescription(node *Process, name string) (cdiDescription, error) {
	var d cdiDescription
	found, err := node.find(name)
	if err != nil {
		return d, err
	}
	defer found.Close()
	file, size, err := found.Regular()
	if err != nil {
		return d, err
	}
	defer file.Close()
	if size > maxDescription {
		return d, fmt.Errorf("%s has more than %d bytes", name, maxDescription)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxDescription))
	if err == nil {
		err = yaml.Unmarshal(text, &d)
	}
	if err != nil {
		return d, fmt.Errorf("read %s: %w", name, err)
	}
	return d, nil
}
