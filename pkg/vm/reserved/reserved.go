// Package reserved lists the annotations of VMs and VMIs that the components alone write, and act on later. Who else
// could write one would have virt-controller or virt-handler act for him: copy disks, resume a guest from memory of
// his choice, or open the guest's firewall.
//
//	VM, its template, VMI         ─► virt-api refuses what a tenant adds, changes or removes (Validate)
//	patches of restores, clones   ─► virt-api refuses those that name one (ValidatePatches); virt-controller, which
//	                                 applies them, refuses a result that has one (Changed)
//	templates, instance types,    ─► virt-controller makes VMs and VMIs without them (Drop)
//	contents of snapshots
//	copies of VMs                 ─► are made without them (Without)
//
// It is pure.
package reserved

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The annotations. The packages that read them say what they have.
const (
	// ResumeMemory is on a VM and on its VMI: package savedmemory.
	ResumeMemory = "virtkit.io/resume-memory"
	// DisksBrought is on a VM: package volumemigration.
	DisksBrought = "virtkit.io/disks-brought"
	// MovedVolumes is on a VMI: package volumemigration.
	MovedVolumes = "virtkit.io/moved-volumes"
	// CopiedPlugged is on a VMI: package hotplug.
	CopiedPlugged = "virtkit.io/copied-plugged"
	// DeclaredVolumes is on a VMI: package hotplug. virt-api writes it, too.
	DeclaredVolumes = "virtkit.io/declared-volumes"
	// TemplateHash and TemplateInterfaces are on a VMI: package rollout.
	TemplateHash       = "virtkit.io/template-hash"
	TemplateInterfaces = "virtkit.io/template-interfaces"
	// NetworkPolicies is on a VMI: package network.
	NetworkPolicies = "virtkit.io/network-policies"
)

// keys has each of them with what somebody is told who writes it.
var keys = map[string]string{
	ResumeMemory: "virt-controller writes it when a restore is to resume the guest; leave it out, and the guest boots",
	DisksBrought: "virt-controller writes it while a migration brings the disks of the VM, and takes it away at the " +
		"migration's end; leave it as it is",
	MovedVolumes:       itself,
	CopiedPlugged:      itself,
	DeclaredVolumes:    itself,
	TemplateHash:       itself,
	TemplateInterfaces: itself,
	NetworkPolicies:    itself,
}

const itself = "is set by virtkit itself; leave it as it is"

// Keys returns the annotations, in order.
func Keys() []string { return slices.Sorted(maps.Keys(keys)) }

// Is reports whether an annotation is one of them.
func Is(key string) bool { return keys[key] != "" }

// Drop removes them.
func Drop(annotations map[string]string) {
	maps.DeleteFunc(annotations, func(key, _ string) bool { return Is(key) })
}

// Without returns a copy without them; nil of nil.
func Without(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	Drop(out)
	return out
}

// Changed returns one that is not as it was, or "".
func Changed(now, before map[string]string) string {
	for _, key := range Keys() {
		value, is := now[key]
		if was, had := before[key]; is != had || value != was {
			return key
		}
	}
	return ""
}

// Place is what has the annotations.
type Place int

const (
	// VM is a VirtualMachine. Its user may remove ResumeMemory, so that the guest boots. DisksBrought stays: without it
	// a migration that fails leaves the VM on disks that are half copied.
	VM Place = iota
	// Template is the template of a VM, replica set or pool. What is there has no effect, and may go.
	Template
	// VMI is a VirtualMachineInstance, from which nothing may be removed. One without ResumeMemory would boot, and its
	// VM would resume the guest at the next start, on disks that do not fit its memory any more.
	VMI
)

// removable reports whether a user may remove an annotation.
func (p Place) removable(key string) bool { return p == Template || p == VM && key != DisksBrought }

// Validate refuses what a user has changed: one that is not as it was, unless it is gone from where it may go.
func Validate(in Place, now, before map[string]string, at *field.Path) (errs field.ErrorList) {
	for _, key := range Keys() {
		value, is := now[key]
		was, had := before[key]
		if is == had && value == was || !is && in.removable(key) {
			continue
		}
		errs = append(errs, field.Forbidden(at.Key(key), keys[key]))
	}
	return errs
}

// ValidatePatches refuses JSON patches, each an operation, that write one. What is no JSON object names none.
func ValidatePatches(patches []string, at *field.Path) (errs field.ErrorList) {
	for i, patch := range patches {
		if key := written(patch); key != "" {
			errs = append(errs, field.Forbidden(at.Index(i), Refusal(key)))
		}
	}
	return errs
}

// Refusal says that patches may not write an annotation.
func Refusal(key string) string {
	return fmt.Sprintf("writes the annotation %s, which the components of virtkit alone write; leave the patch out",
		key)
}

// written returns the annotation that an operation of a JSON patch writes, or "".
func written(patch string) string {
	var operation map[string]json.RawMessage // the names of its fields are exact
	if json.Unmarshal([]byte(patch), &operation) != nil {
		return ""
	}
	var op, path string
	var value any
	for name, into := range map[string]any{"op": &op, "path": &path, "value": &value} {
		if raw, given := operation[name]; given && json.Unmarshal(raw, into) != nil {
			return "" // nobody applies it
		}
	}
	if op == "remove" || op == "test" {
		return ""
	}
	for token := range strings.SplitSeq(path, "/") {
		if key := strings.NewReplacer("~1", "/", "~0", "~").Replace(token); Is(key) {
			return key
		}
	}
	return within(value)
}

// within returns the annotation that is a key somewhere in a JSON value, or "".
func within(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if Is(key) {
				return key
			}
			if found := within(value[key]); found != "" {
				return found
			}
		}
	case []any:
		for _, element := range value {
			if found := within(element); found != "" {
				return found
			}
		}
	}
	return ""
}
