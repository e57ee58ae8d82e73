package nodestatus

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// versioned is a model of QEMU's that differs little from the one without the version, which stands for it in labels.
var versioned = regexp.MustCompile(`-v[0-9]+$`)

// cpuMap is libvirt's account of the models that there are.
type cpuMap struct {
	features map[string]feature
	models   map[string]cpuModel
	vendors  map[string]string
}

// feature is the bits that a CPU with it has set.
type feature struct {
	cpuid []bits
	// stays says that a guest with it cannot move.
	stays bool
	msrs  map[uint32]uint64
}

type bits struct {
	Leaf Leaf
	Mask Registers
}

type cpuModel struct {
	base       string
	vendor     string
	signatures []signature
	features   []string
}

// signature is a family and model of processors.
type signature struct{ family, model uint32 }

// mapFile is a file of the map.
type mapFile struct {
	Features []struct {
		Name       string `xml:"name,attr"`
		Migratable string `xml:"migratable,attr"`
		CPUID      []struct {
			Function string `xml:"eax_in,attr"`
			Index    string `xml:"ecx_in,attr"`
			EAX      string `xml:"eax,attr"`
			EBX      string `xml:"ebx,attr"`
			ECX      string `xml:"ecx,attr"`
			EDX      string `xml:"edx,attr"`
		} `xml:"cpuid"`
		MSRs []struct {
			Index string `xml:"index,attr"`
			EAX   string `xml:"eax,attr"`
			EDX   string `xml:"edx,attr"`
		} `xml:"msr"`
	} `xml:"feature"`
	Models []struct {
		Name string `xml:"name,attr"`
		Base struct {
			Name string `xml:"name,attr"`
		} `xml:"model"`
		Vendor struct {
			Name string `xml:"name,attr"`
		} `xml:"vendor"`
		Signatures []struct {
			Family uint32 `xml:"family,attr"`
			Model  uint32 `xml:"model,attr"`
		} `xml:"signature"`
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
	m := &cpuMap{features: map[string]feature{}, models: map[string]cpuModel{}, vendors: map[string]string{}}
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
	for i := range file.Features {
		name, f := file.Features[i].Name, feature{stays: file.Features[i].Migratable == "no"}
		for _, cpuid := range file.Features[i].CPUID {
			n, err := numbers(cpuid.Function, cpuid.Index, cpuid.EAX, cpuid.EBX, cpuid.ECX, cpuid.EDX)
			if err != nil {
				return fmt.Errorf("feature %s: %w", name, err)
			}
			f.cpuid = append(f.cpuid, bits{Leaf{n[0], n[1]}, Registers(n[2:])})
		}
		for _, msr := range file.Features[i].MSRs {
			n, err := numbers(msr.Index, msr.EAX, msr.EDX)
			if err != nil {
				return fmt.Errorf("feature %s: %w", name, err)
			}
			if f.msrs == nil {
				f.msrs = map[uint32]uint64{}
			}
			f.msrs[n[0]] |= uint64(n[2])<<32 | uint64(n[1])
		}
		m.features[name] = f
	}
	for _, model := range file.Models {
		out := cpuModel{base: model.Base.Name, vendor: model.Vendor.Name}
		for _, s := range model.Signatures {
			out.signatures = append(out.signatures, signature{s.Family, s.Model})
		}
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

// numbers reads some, in any notation of C's; nothing is 0.
func numbers(texts ...string) ([]uint32, error) {
	out := make([]uint32, len(texts))
	for i, text := range texts {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			return nil, err
		}
		out[i] = uint32(n)
	}
	return out, nil
}

// has reports whether a CPU has a feature that the map knows and says bits of.
func (m *cpuMap) has(cpu *CPU, name string) bool {
	f := m.features[name]
	for _, b := range f.cpuid {
		is := cpu.Leaves[b.Leaf]
		for i := range is {
			if is[i]&b.Mask[i] != b.Mask[i] {
				return false
			}
		}
	}
	for index, mask := range f.msrs {
		if cpu.MSRs[index]&mask != mask {
			return false
		}
	}
	return len(f.cpuid)+len(f.msrs) > 0
}

// featuresOf lists what a CPU has.
func (m *cpuMap) featuresOf(cpu *CPU) []string {
	var out []string
	for name := range m.features {
		if m.has(cpu, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// usable lists the models that a CPU can be shown as, without versions.
func (m *cpuMap) usable(cpu *CPU) []string {
	var out []string
	for name := range m.models {
		if needs, ok := m.needs(name, 0); ok && !versioned.MatchString(name) &&
			!slices.ContainsFunc(needs, func(feature string) bool {
				f := m.features[feature]
				return !m.has(cpu, feature) && len(f.cpuid)+len(f.msrs) > 0
			}) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// needs lists a model's features. It follows models that build on others, a few at most.
func (m *cpuMap) needs(name string, depth int) ([]string, bool) {
	model, ok := m.models[name]
	if !ok || depth > 8 {
		return nil, false
	}
	if model.base == "" {
		return model.features, true
	}
	base, ok := m.needs(model.base, depth+1)
	return append(slices.Clone(base), model.features...), ok
}

// closest returns the model among some that describes a CPU best: one of its maker's and, where there is such, made for
// its family and model, to which fewest features have to be added. beyond are the CPU's features that the model lacks.
func (m *cpuMap) closest(cpu *CPU, models []string) (name string, beyond []string) {
	vendor, is := m.vendor(cpu), signatureOf(cpu.Leaves[Leaf{Function: 1}][0])
	features := m.featuresOf(cpu)
	matched := false
	for _, candidate := range models {
		model := m.models[candidate]
		matches := slices.Contains(model.signatures, is)
		if model.vendor != "" && model.vendor != vendor || matched && !matches {
			continue
		}
		needs, _ := m.needs(candidate, 0)
		var more []string
		for _, feature := range features {
			if !slices.Contains(needs, feature) && !m.features[feature].stays {
				more = append(more, feature)
			}
		}
		if name == "" || matches && !matched || len(more) < len(beyond) {
			name, beyond, matched = candidate, more, matches
		}
	}
	return name, beyond
}

// signatureOf reads the family and model of CPUID's function 1, whose extended parts count for some families only.
func signatureOf(eax uint32) signature {
	s := signature{family: eax >> 8 & 0xf, model: eax >> 4 & 0xf}
	if s.family == 6 || s.family == 15 {
		s.model |= eax >> 16 & 0xf << 4
	}
	if s.family == 15 {
		s.family += eax >> 20 & 0xff
	}
	return s
}

// vendor returns the CPU's maker as libvirt calls it, "" for one that it does not know.
func (m *cpuMap) vendor(cpu *CPU) string {
	r := cpu.Leaves[Leaf{}]
	var text strings.Builder
	for _, register := range []uint32{r[1], r[3], r[2]} {
		for range 4 {
			text.WriteByte(byte(register))
			register >>= 8
		}
	}
	return m.vendors[text.String()]
}
