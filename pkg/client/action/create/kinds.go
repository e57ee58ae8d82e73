package create

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Scope is where an instance type or preference lives: Namespaced in Namespace, which may be empty for the context's;
// else in the cluster.
type Scope struct {
	Name       string
	Namespaced bool
	Namespace  string
}

func (s Scope) validate() error {
	if errs := validation.IsDNS1123Subdomain(s.Name); len(errs) > 0 {
		return invalid("name", "%q is no name: %s", s.Name, errs[0])
	}
	return nil
}

// meta returns the object's kind and metadata; in kind, %s stands where the cluster's kind has Cluster.
func (s Scope) meta(kind string) (metav1.TypeMeta, metav1.ObjectMeta) {
	of, object := "Cluster", metav1.ObjectMeta{Name: s.Name}
	if s.Namespaced {
		of, object.Namespace = "", s.Namespace
	}
	return metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: fmt.Sprintf(kind, of)}, object
}

// Device is a GPU or host device: its name in the guest's spec, and the resource that a device plugin offers.
type Device struct {
	Name, DeviceName string
}

// InstancetypeOptions describe an instance type.
type InstancetypeOptions struct {
	Scope
	CPU               uint32
	Memory            string
	GPUs, HostDevices []Device
	// IOThreadsPolicy is "auto" or "shared"; none when it is empty.
	IOThreadsPolicy string
}

// Instancetype builds a VirtualMachineInstancetype or VirtualMachineClusterInstancetype. Errors are FieldErrors.
func Instancetype(o InstancetypeOptions) (*unstructured.Unstructured, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.CPU == 0 {
		return nil, invalid("cpu", "must be 1 or more")
	}
	memory, err := memoryOf(o.Memory)
	if err != nil {
		return nil, err
	}
	spec := v1beta1.VirtualMachineInstancetypeSpec{
		CPU: v1beta1.CPUInstancetype{Guest: o.CPU}, Memory: v1beta1.MemoryInstancetype{Guest: memory},
	}
	for _, d := range o.GPUs {
		if err := d.validate("gpu"); err != nil {
			return nil, err
		}
		spec.GPUs = append(spec.GPUs, v1.GPU{Name: d.Name, DeviceName: d.DeviceName})
	}
	for _, d := range o.HostDevices {
		if err := d.validate("hostdevice"); err != nil {
			return nil, err
		}
		spec.HostDevices = append(spec.HostDevices, v1.HostDevice{Name: d.Name, DeviceName: d.DeviceName})
	}
	switch policy := v1.IOThreadsPolicy(o.IOThreadsPolicy); policy {
	case "":
	case v1.IOThreadsPolicyAuto, v1.IOThreadsPolicyShared:
		spec.IOThreadsPolicy = &policy
	default:
		return nil, invalid("iothreadspolicy", "%q is not one of auto, shared", o.IOThreadsPolicy)
	}
	kind, meta := o.meta("VirtualMachine%sInstancetype")
	return object(&v1beta1.VirtualMachineInstancetype{TypeMeta: kind, ObjectMeta: meta, Spec: spec})
}

func (d Device) validate(field string) error {
	switch {
	case d.Name == "":
		return invalid(field, "name is missing")
	case d.DeviceName == "":
		return invalid(field, "devicename is missing")
	}
	return nil
}

// PreferenceOptions describe a preference; what is empty is left out.
type PreferenceOptions struct {
	Scope
	VolumeStorageClass, MachineType, CPUTopology string
}

// Topologies returns the CPU topologies that a preference may ask for, the deprecated names last.
func Topologies() []string {
	return []string{
		string(v1beta1.Sockets), string(v1beta1.Cores), string(v1beta1.Threads), string(v1beta1.Spread),
		string(v1beta1.Any),
		string(v1beta1.DeprecatedPreferSockets), string(v1beta1.DeprecatedPreferCores),
		string(v1beta1.DeprecatedPreferThreads),
		string(v1beta1.DeprecatedPreferSpread), string(v1beta1.DeprecatedPreferAny),
	}
}

// Preference builds a VirtualMachinePreference or VirtualMachineClusterPreference. Errors are FieldErrors.
func Preference(o PreferenceOptions) (*unstructured.Unstructured, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var spec v1beta1.VirtualMachinePreferenceSpec
	if o.VolumeStorageClass != "" {
		spec.Volumes = &v1beta1.VolumePreferences{PreferredStorageClassName: o.VolumeStorageClass}
	}
	if o.MachineType != "" {
		spec.Machine = &v1beta1.MachinePreferences{PreferredMachineType: o.MachineType}
	}
	if o.CPUTopology != "" {
		if !slices.Contains(Topologies(), o.CPUTopology) {
			return nil, invalid("cpu-topology", "%q is not one of %s", o.CPUTopology, strings.Join(Topologies(), ", "))
		}
		topology := v1beta1.PreferredCPUTopology(o.CPUTopology)
		spec.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: &topology}
	}
	kind, meta := o.meta("VirtualMachine%sPreference")
	return object(&v1beta1.VirtualMachinePreference{TypeMeta: kind, ObjectMeta: meta, Spec: spec})
}

// object returns a typed object as a user would write it.
func object(typed any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}
