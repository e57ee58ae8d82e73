// Package instancetype expands instance types and preferences: it applies VirtualMachineInstancetype and
// VirtualMachinePreference, and their cluster-wide kinds, to a VirtualMachine's template.
//
//	VM ─► Resolve (reads through a Reader) ─► Resolved ─► Expand ─► the VMI's spec, or conflicts by field
//	                                             │
//	                                             └─► Capture ─► ControllerRevision, which pins it for the VM
//
// An instance type decides: a template that sets the same field conflicts with it. A preference fills in what the
// template leaves open. virt-api calls it at admission and for expand-spec, virt-controller when it makes a VMI. All
// but Resolve and Infer, which take a Reader, is pure.
package instancetype

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Role says whether an object is a VM's instance type or its preference.
type Role string

// The roles, in the words of messages.
const (
	Instancetype Role = "instance type"
	Preference   Role = "preference"
)

// kindsOf maps a matcher's kind, singular or plural and in any case, to the kind of the API.
var kindsOf = map[Role]map[string]string{
	Instancetype: {
		"":                              "VirtualMachineClusterInstancetype",
		api.ClusterSingularResourceName: "VirtualMachineClusterInstancetype",
		api.ClusterPluralResourceName:   "VirtualMachineClusterInstancetype",
		api.SingularResourceName:        "VirtualMachineInstancetype",
		api.PluralResourceName:          "VirtualMachineInstancetype",
	},
	Preference: {
		"": "VirtualMachineClusterPreference",
		api.ClusterSingularPreferenceResourceName: "VirtualMachineClusterPreference",
		api.ClusterPluralPreferenceResourceName:   "VirtualMachineClusterPreference",
		api.SingularPreferenceResourceName:        "VirtualMachinePreference",
		api.PluralPreferenceResourceName:          "VirtualMachinePreference",
	},
}

// KindOf returns the API's kind for a matcher's kind.
func KindOf(role Role, kind string) (string, error) {
	if found := kindsOf[role][strings.ToLower(kind)]; found != "" {
		return found, nil
	}
	return "", fmt.Errorf("%q is no kind of %s; use %s or %s", kind, role, kindsOf[role][""],
		strings.Replace(kindsOf[role][""], "Cluster", "", 1))
}

// namespaced reports whether a kind of the API lives in a namespace.
func namespaced(kind string) bool { return !strings.Contains(kind, "Cluster") }

// matcher holds what VirtualMachine's spec.instancetype and spec.preference have in common.
type matcher struct {
	role               Role
	field              *field.Path
	name, kind         string
	revision           string
	inferFrom          string
	inferFailurePolicy *v1.InferFromVolumeFailurePolicy
	// status is the reference that the VM's status records.
	status *v1.InstancetypeStatusRef
}

// matchers returns the matchers that the VM has.
func matchers(vm *v1.VirtualMachine) []matcher {
	var out []matcher
	if m := vm.Spec.Instancetype; m != nil {
		out = append(out, matcher{
			Instancetype, field.NewPath("spec", "instancetype"), m.Name, m.Kind, m.RevisionName,
			m.InferFromVolume, m.InferFromVolumeFailurePolicy, vm.Status.InstancetypeRef,
		})
	}
	if m := vm.Spec.Preference; m != nil {
		out = append(out, matcher{
			Preference, field.NewPath("spec", "preference"), m.Name, m.Kind, m.RevisionName,
			m.InferFromVolume, m.InferFromVolumeFailurePolicy, vm.Status.PreferenceRef,
		})
	}
	return out
}

// Object is an instance type or preference of either scope, as it is now or as a revision has it.
type Object struct {
	Role Role
	// Kind and Name are the API's kind and the object's name.
	Kind, Name string
	// Revision is the ControllerRevision that it was read from; empty when it is the object of now.
	Revision string
	// Instancetype or Preference is set, by Role.
	Instancetype *v1beta1.VirtualMachineInstancetypeSpec
	Preference   *v1beta1.VirtualMachinePreferenceSpec

	object runtime.Object
}

func (o *Object) String() string { return fmt.Sprintf("%s %q", o.Role, o.Name) }

// Resolved has the objects that a VM refers to; nil where it refers to none.
type Resolved struct {
	Instancetype, Preference *Object
}

// None reports whether the VM refers to nothing, so that its template is all there is.
func (r Resolved) None() bool { return r.Instancetype == nil && r.Preference == nil }

func (r Resolved) instancetype() *v1beta1.VirtualMachineInstancetypeSpec {
	if r.Instancetype == nil {
		return nil
	}
	return r.Instancetype.Instancetype
}

func (r Resolved) preference() *v1beta1.VirtualMachinePreferenceSpec {
	if r.Preference == nil {
		return nil
	}
	return r.Preference.Preference
}

// Expand returns the template of vm with what it refers to written into it. The errors name the field of the
// VirtualMachine that conflicts with the instance type, or that falls short of what the preference requires.
func Expand(vm *v1.VirtualMachine, resolved Resolved) (*v1.VirtualMachineInstanceTemplateSpec, field.ErrorList) {
	template := vm.Spec.Template.DeepCopy()
	if resolved.None() {
		return template, nil
	}
	at := field.NewPath("spec", "template", "spec")
	// A preference speaks of the disks and interfaces that the guest gets without being listed, too.
	surface.Attach(&template.Spec)
	var errs field.ErrorList
	if it := resolved.instancetype(); it != nil {
		conflict := func(path *field.Path) {
			text := fmt.Sprintf(conflictsWith+"%s, which sets it; remove one of them", resolved.Instancetype)
			errs = append(errs, field.Forbidden(path, text).WithOrigin(originConflict))
		}
		applyInstancetype(it, resolved.preference(), &template.Spec, at, conflict)
		template.ObjectMeta.Annotations = addAnnotations(template.ObjectMeta.Annotations, it.Annotations,
			field.NewPath("spec", "template", "metadata", "annotations"), conflict)
	}
	if preference := resolved.preference(); preference != nil {
		applyPreference(preference, &template.Spec)
		template.ObjectMeta.Annotations = addAnnotations(template.ObjectMeta.Annotations,
			preference.Annotations, nil, nil)
		errs = append(errs, requirements(resolved, &template.Spec, at)...)
	}
	return template, errs
}

// originConflict is the Origin of an Expand's error that is a conflict.
const originConflict = "virtkit.io/instancetype-conflict"

const (
	conflictsWith = "conflicts with selected "
	// Conflicts is in every message that a field of a VM is one that its instance type sets; KubeVirt's words, which
	// its clients look for, and so does virtctl.
	Conflicts = conflictsWith + "instance type"
)

// Conflict returns the sentence in which KubeVirt says that the fields of errs conflict with the instance type, which
// its clients look for; empty unless all of errs are such conflicts.
func Conflict(errs ...*field.Error) string {
	paths := make([]string, 0, len(errs))
	for _, err := range errs {
		if err.Origin != originConflict {
			return ""
		}
		paths = append(paths, err.Field)
	}
	if len(paths) == 0 {
		return ""
	}
	return fmt.Sprintf("VM field(s) %s %s", strings.Join(paths, ", "), Conflicts)
}

// Annotations say on a VMI where it comes from; KubeVirt's keys.
func (r Resolved) Annotations() map[string]string {
	out := map[string]string{}
	for _, object := range []*Object{r.Instancetype, r.Preference} {
		if object == nil {
			continue
		}
		out[map[string]string{
			"VirtualMachineInstancetype":        v1.InstancetypeAnnotation,
			"VirtualMachineClusterInstancetype": v1.ClusterInstancetypeAnnotation,
			"VirtualMachinePreference":          v1.PreferenceAnnotation,
			"VirtualMachineClusterPreference":   v1.ClusterPreferenceAnnotation,
		}[object.Kind]] = object.Name
	}
	return out
}

// addAnnotations adds what is not there; another value under the same key is a conflict, if conflict is given.
func addAnnotations(have, more map[string]string, at *field.Path, conflict func(*field.Path)) map[string]string {
	for key, value := range more {
		if own, ok := have[key]; ok {
			if own != value && conflict != nil {
				conflict(at.Key(key))
			}
			continue
		}
		if have == nil {
			have = map[string]string{}
		}
		have[key] = value
	}
	return have
}
