package node

import (
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// versioned is a model of QEMU's that differs little from the one without the version, which stands for it in labels.
var versioned = regexp.MustCompile(`-v[0-9]+$`)

// emulated are features that KVM has whatever the CPU, without saying so.
var emulated = []string{"x2apic", "tsc-deadline", "hypervisor", "apic"}

// cpuMap is libvirt's account of the models that there are.
type cpuMap struct {
	// features are the CPUID bits by name; one without any is a matter of model-specific registers, which is not looked at.
	features map[string][]bits
	models   map[string]cpuModel
	vendors  map[string]string
}

type bits struct {
	Leaf Leaf
	Mask Registers
}

type cpuModel struct {
	base     string
	features []string
}

// mapFile is a file of the map.
type mapFile struct {
	Features []struct {
		Name  string `xml:"name,attr"`
		CPUID []struct {
			Function string `xml:"eax_in,attr"`
			Index    string `xml:"ecx_in,attr"`
			EAX      string `xml:"eax,attr"`
			EBX      string `xml:"ebx,attr"`
			ECX      string `xml:"ecx,attr"`
			EDX      string `xml:"edx,attr"`
		} `xml:"cpuid"`
	} `xml:"feature"`
	Models []struct {
		Name string `xml:"name,attr"`
		Base struct {
			Name string `xml:"name,attr"`
		} `xml:"model"`
		Features []struct {
			Name    string `xml:"name,attr"`
			Added   string `xml:"added,attr"`
			Removed string `xml:"removed,attr"`
		} `xml:"feature"`
	} `xml:"model"`
	Vendors []struct {
		Name string `xml:"name,attr"`
		Text string `xml:"string,attr"`
	} `xml:"vendor"`
}

// readMap reads the map for x86 in a directory, libvirt's cpu_map.
func readMap(dir string) (*cpuMap, error) {
	files, err := filepath.Glob(filepath.Join(dir, "x86_*.xml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no CPU models", dir)
	}
	m := &cpuMap{features: map[string][]bits{}, models: map[string]cpuModel{}, vendors: map[string]string{}}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read CPU models: %w", err)
		}
		var file mapFile
		if err := xml.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("read CPU models, %s: %w", path, err)
		}
		if err := m.add(&file); err != nil {
			return nil, fmt.Errorf("read CPU models, %s: %w", path, err)
		}
	}
	return m, nil
}

func (m *cpuMap) add(file *mapFile) error {
	for _, feature := range file.Features {
		m.features[feature.Name] = nil
		for _, cpuid := range feature.CPUID {
			var numbers [6]uint32
			for i, text := range []string{cpuid.Function, cpuid.Index, cpuid.EAX, cpuid.EBX, cpuid.ECX, cpuid.EDX} {
				if text == "" {
					continue
				}
				n, err := strconv.ParseUint(text, 0, 32)
				if err != nil {
					return fmt.Errorf("feature %s: %w", feature.Name, err)
				}
				numbers[i] = uint32(n)
			}
			m.features[feature.Name] = append(m.features[feature.Name], bits{Leaf{numbers[0], numbers[1]}, Registers(numbers[2:])})
		}
	}
	for _, model := range file.Models {
		out := cpuModel{base: model.Base.Name}
		for _, feature := range model.Features {
			// What libvirt has added to a model later need not be there.
			if feature.Added != "yes" && feature.Removed != "yes" {
				out.features = append(out.features, feature.Name)
			}
		}
		m.models[model.Name] = out
	}
	for _, vendor := range file.Vendors {
		m.vendors[vendor.Text] = vendor.Name
	}
	return nil
}

// usable lists the models that a CPU can be shown as, without versions.
func (m *cpuMap) usable(cpu map[Leaf]Registers) []string {
	var out []string
	for name := range m.models {
		if !versioned.MatchString(name) && m.fits(name, cpu, 0) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// fits follows models that build on others, a few at most.
func (m *cpuMap) fits(name string, cpu map[Leaf]Registers, depth int) bool {
	model, ok := m.models[name]
	if !ok || depth > 8 || model.base != "" && !m.fits(model.base, cpu, depth+1) {
		return false
	}
	return !slices.ContainsFunc(model.features, func(feature string) bool {
		return !slices.Contains(emulated, feature) && slices.ContainsFunc(m.features[feature], func(b bits) bool {
			has := cpu[b.Leaf]
			for i := range has {
				if has[i]&b.Mask[i] != b.Mask[i] {
					return true
				}
			}
			return false
		})
	})
}

// vendor is the CPU's maker as libvirt calls it, "" for one that it does not know.
func (m *cpuMap) vendor(cpu map[Leaf]Registers) string {
	r := cpu[Leaf{}]
	var text strings.Builder
	for _, register := range []uint32{r[1], r[3], r[2]} {
		for range 4 {
			text.WriteByte(byte(register))
			register >>= 8
		}
	}
	return m.vendors[text.String()]
}

// CPUModels gives the labels cpu-vendor.node.kubevirt.io/NAME and cpu-model.node.kubevirt.io/NAME of a node with hardware
// virtualization: its CPU's maker, and the models that guests can be given there, but for those of no use any more. dir is
// libvirt's map of models.
func CPUModels(dir string, cpu func() (map[Leaf]Registers, error), obsolete func() map[string]bool) (Labels, error) {
	m, err := readMap(dir)
	if err != nil {
		return nil, err
	}
	has, err := cpu()
	if err != nil {
		return nil, err
	}
	usable, vendor := m.usable(has), m.vendor(has)
	return func() (map[string]*string, error) {
		labels := map[string]*string{}
		none := obsolete()
		for name := range m.models {
			if !versioned.MatchString(name) {
				labels[v1.CPUModelLabel+name] = nil
			}
		}
		for _, name := range m.vendors {
			labels[v1.CPUModelVendorLabel+name] = nil
		}
		for _, name := range usable {
			if !none[name] {
				labels[v1.CPUModelLabel+name] = new("true")
			}
		}
		if vendor != "" {
			labels[v1.CPUModelVendorLabel+vendor] = new("true")
		}
		return labels, nil
	}, nil
}

// All joins labels.
func All(some ...Labels) Labels {
	return func() (map[string]*string, error) {
		all := map[string]*string{}
		var errs []error
		for _, labels := range some {
			more, err := labels()
			errs = append(errs, err)
			maps.Copy(all, more)
		}
		return all, errors.Join(errs...)
	}
}
