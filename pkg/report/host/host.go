// Package host says what a node's machine offers to guests, as virt-handler finds it and leaves it on the node, in the
// annotation names.AnnotationHost, for `virtctl doctor` to read; and when virt-handler has last left a heartbeat there
// (heartbeat.go).
package host

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Facts of one machine.
type Facts struct {
	// KVM is whether there is hardware virtualization; NoKVM says why not.
	KVM   bool   `json:"kvm"`
	NoKVM string `json:"noKVM,omitempty"`
	// Module is the kernel module behind /dev/kvm: kvm_intel, kvm_amd, another, or empty.
	Module string `json:"module,omitempty"`
	// Nested: guests may run guests of their own with KVM.
	Nested bool `json:"nested,omitempty"`
	// CPU is the model's name.
	CPU string `json:"cpu,omitempty"`
	// Virtualized: the machine is itself a guest.
	Virtualized bool `json:"virtualized,omitempty"`
}

// Read reads the facts from a /sys and a /proc. noKVM is why there is no hardware virtualization, nil when there is.
func Read(sys, proc string, noKVM error) Facts {
	f := Facts{KVM: noKVM == nil}
	if noKVM != nil {
		f.NoKVM = noKVM.Error()
	}
	modules, _ := filepath.Glob(filepath.Join(sys, "module", "kvm_*")) // the pattern is good
	for _, module := range modules {
		f.Module = filepath.Base(module)
		nested, err := os.ReadFile(filepath.Join(module, "parameters", "nested"))
		text := strings.TrimSpace(string(nested))
		f.Nested = err == nil && (text == "Y" || text == "1")
	}
	f.CPU, f.Virtualized = cpu(filepath.Join(proc, "cpuinfo"))
	return f
}

// cpu reads the first processor of a cpuinfo.
func cpu(path string) (model string, virtualized bool) {
	file, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() && lines.Text() != "" {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			virtualized = strings.Contains(value+" ", " hypervisor ")
		}
	}
	return model, virtualized
}

// Annotation returns the facts as they are left on a node.
func (f Facts) Annotation() (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode the host's facts: %w", err)
	}
	return string(text), nil
}

// Parse reads the annotation.
func Parse(text string) (Facts, error) {
	var f Facts
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return Facts{}, fmt.Errorf("read the host's facts: %w", err)
	}
	return f, nil
}
