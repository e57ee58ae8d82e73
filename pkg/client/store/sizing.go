package store

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
)

// Sizing is an instance type or a preference, of a namespace or of the cluster.
type Sizing struct {
	// Namespace is empty for one of the cluster.
	Namespace, Name string
	// Resource is the API's plural: virtualmachineinstancetypes, …clusterinstancetypes, …preferences,
	// …clusterpreferences.
	Resource string
	// Preference is whether it is one.
	Preference bool
	Created    time.Time
	Labels     map[string]string
	// CPUs and Memory are what an instance type gives, or a preference asks for; 0 where it says nothing.
	CPUs   uint32
	Memory resource.Quantity
	// Details are what else it decides: "2 GPUs, dedicated CPUs", "disks virtio, EFI".
	Details []string
}

// Key returns the kind, with the namespace, and the name.
func (s *Sizing) Key() Key { return Key{Namespace: s.Resource + "/" + s.Namespace, Name: s.Name} }

// Resources of instance types and preferences.
const (
	Instancetypes        = "virtualmachineinstancetypes"
	ClusterInstancetypes = "virtualmachineclusterinstancetypes"
	Preferences          = "virtualmachinepreferences"
	ClusterPreferences   = "virtualmachineclusterpreferences"
)

// OfInstancetype makes the row of an instance type.
func OfInstancetype(o *instancetypev1beta1.VirtualMachineInstancetype) *Sizing {
	return ofInstancetype(Instancetypes, &o.ObjectMeta, &o.Spec)
}

// OfClusterInstancetype makes the row of an instance type of the cluster.
func OfClusterInstancetype(o *instancetypev1beta1.VirtualMachineClusterInstancetype) *Sizing {
	return ofInstancetype(ClusterInstancetypes, &o.ObjectMeta, &o.Spec)
}

// OfPreference makes the row of a preference.
func OfPreference(o *instancetypev1beta1.VirtualMachinePreference) *Sizing {
	return ofPreference(Preferences, &o.ObjectMeta, &o.Spec)
}

// OfClusterPreference makes the row of a preference of the cluster.
func OfClusterPreference(o *instancetypev1beta1.VirtualMachineClusterPreference) *Sizing {
	return ofPreference(ClusterPreferences, &o.ObjectMeta, &o.Spec)
}

func sizingOf(kind string, m *metav1.ObjectMeta) *Sizing {
	return &Sizing{
		Namespace: m.Namespace, Name: m.Name, Resource: kind, Created: m.CreationTimestamp.Time,
		Labels: m.Labels,
	}
}

func (s *Sizing) say(is bool, format string, args ...any) {
	if is {
		s.Details = append(s.Details, fmt.Sprintf(format, args...))
	}
}

func ofInstancetype(
	kind string, m *metav1.ObjectMeta, spec *instancetypev1beta1.VirtualMachineInstancetypeSpec,
) *Sizing {
	s := sizingOf(kind, m)
	s.CPUs, s.Memory = spec.CPU.Guest, spec.Memory.Guest
	s.say(len(spec.GPUs) > 0, "%d GPUs", len(spec.GPUs))
	s.say(len(spec.HostDevices) > 0, "%d host devices", len(spec.HostDevices))
	s.say(spec.CPU.DedicatedCPUPlacement != nil && *spec.CPU.DedicatedCPUPlacement, "dedicated CPUs")
	if h := spec.Memory.Hugepages; h != nil {
		s.say(true, "huge pages of %s", h.PageSize)
	}
	s.say(spec.Memory.OvercommitPercent > 0, "%d%% overcommitted", spec.Memory.OvercommitPercent)
	s.say(spec.LaunchSecurity != nil, "launch security")
	return s
}

func ofPreference(kind string, m *metav1.ObjectMeta, spec *instancetypev1beta1.VirtualMachinePreferenceSpec) *Sizing {
	s := sizingOf(kind, m)
	s.Preference = true
	if r := spec.Requirements; r != nil {
		if r.CPU != nil {
			s.CPUs = r.CPU.Guest
		}
		if r.Memory != nil {
			s.Memory = r.Memory.Guest
		}
	}
	if c := spec.CPU; c != nil && c.PreferredCPUTopology != nil {
		s.say(true, "CPUs as %s", strings.ToLower(string(*c.PreferredCPUTopology)))
	}
	if d := spec.Devices; d != nil {
		s.say(d.PreferredDiskBus != "", "disks %s", d.PreferredDiskBus)
		s.say(d.PreferredInterfaceModel != "", "interfaces %s", d.PreferredInterfaceModel)
		s.say(d.PreferredTPM != nil, "TPM")
	}
	if f := spec.Firmware; f != nil {
		s.say(f.PreferredEfi != nil || f.DeprecatedPreferredUseEfi != nil && *f.DeprecatedPreferredUseEfi, "EFI")
	}
	if mt := spec.Machine; mt != nil {
		s.say(mt.PreferredMachineType != "", "machine %s", mt.PreferredMachineType)
	}
	return s
}
