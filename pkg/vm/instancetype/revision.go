package instancetype

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/canonical"
)

// Capture returns the ControllerRevision that keeps a present object for vm, as KubeVirt's are: later changes of the
// object do not touch the VM. It belongs to the VM and is deleted with it.
func Capture(vm *v1.VirtualMachine, o *Object) (*appsv1.ControllerRevision, error) {
	copied := o.object.DeepCopyObject()
	accessor, err := meta.Accessor(copied)
	if err != nil {
		return nil, fmt.Errorf("capture %s %s: %w", o.Kind, o.Name, err)
	}
	copied.GetObjectKind().SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(o.Kind))
	accessor.SetManagedFields(nil)
	data, err := canonical.Encode(copied)
	if err != nil {
		return nil, fmt.Errorf("capture %s %s: %w", o.Kind, o.Name, err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:      revisionName(vm, o, accessor),
			Namespace: vm.Namespace,
			Labels: map[string]string{
				api.ControllerRevisionObjectGenerationLabel: strconv.FormatInt(accessor.GetGeneration(), 10),
				api.ControllerRevisionObjectKindLabel:       o.Kind,
				api.ControllerRevisionObjectNameLabel:       names.LabelValue(o.Name),
				api.ControllerRevisionObjectUIDLabel:        string(accessor.GetUID()),
				api.ControllerRevisionObjectVersionLabel:    v1beta1.SchemeGroupVersion.Version,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data:     data,
		Revision: 1,
	}, nil
}

// revisionName differs by VM, object and generation, so that capturing the same twice finds it there.
func revisionName(vm *v1.VirtualMachine, o *Object, object metav1.Object) string {
	name := fmt.Sprintf("%s-%s-%s-%s-%d", vm.Name, o.Name, v1beta1.SchemeGroupVersion.Version, object.GetUID(),
		object.GetGeneration())
	return names.Shorten(name, validation.DNS1123SubdomainMaxLength)
}

// SameRevision reports whether two revisions keep the same spec. What they say of their object beside it, such as its
// labels, may differ.
func SameRevision(a, b *appsv1.ControllerRevision) bool {
	role := Instancetype
	if strings.Contains(b.Labels[api.ControllerRevisionObjectKindLabel], "Preference") {
		role = Preference
	}
	x, y := &Object{Role: role}, &Object{Role: role}
	return x.fromRevision(a) == nil && y.fromRevision(b) == nil &&
		equality.Semantic.DeepEqual(x.Instancetype, y.Instancetype) &&
		equality.Semantic.DeepEqual(x.Preference, y.Preference)
}

// Reference returns the record of an object in the VM's status.
func Reference(o *Object, revision string) *v1.InstancetypeStatusRef {
	return &v1.InstancetypeStatusRef{
		Name: o.Name, Kind: o.Kind,
		ControllerRevisionRef: &v1.ControllerRevisionRef{Name: revision},
	}
}

// RevisionNames returns the ControllerRevisions that a VM's spec names for its instance type and preference.
func RevisionNames(spec *v1.VirtualMachineSpec) []string {
	var out []string
	for _, name := range revisionNames(spec) {
		if *name != "" {
			out = append(out, *name)
		}
	}
	return out
}

// RenameRevisions replaces each name that RevisionNames returns by another.
func RenameRevisions(spec *v1.VirtualMachineSpec, rename func(string) string) {
	for _, name := range revisionNames(spec) {
		if *name != "" {
			*name = rename(*name)
		}
	}
}

func revisionNames(spec *v1.VirtualMachineSpec) []*string {
	var out []*string
	if m := spec.Instancetype; m != nil {
		out = append(out, &m.RevisionName)
	}
	if m := spec.Preference; m != nil {
		out = append(out, &m.RevisionName)
	}
	return out
}
