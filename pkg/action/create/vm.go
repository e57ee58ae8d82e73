// Package create builds VirtualMachines from what a user says about them. It is pure: the same Options give the
// same object, byte for byte. `virtctl create vm` prints or applies it.
package create

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// Defaults are those of KubeVirt's `virtctl create vm`.
const (
	DefaultMemory                        = "512Mi"
	DefaultRunStrategy                   = v1.RunStrategyAlways
	DefaultTerminationGracePeriodSeconds = 180
)

// Options describe a VirtualMachine.
type Options struct {
	Name string
	// Namespace is written into the object when it is not empty.
	Namespace   string
	RunStrategy string
	// Memory is what the guest sees, as a quantity: 2Gi.
	Memory string
	// CPU is the number of cores; 0 leaves it to the server, which gives one.
	CPU                           uint32
	TerminationGracePeriodSeconds int64
	Volumes                       []Volume
	CloudInit                     CloudInit
}

// Kind is where a volume's content comes from.
type Kind string

const (
	ContainerDisk Kind = "containerdisk"
	Claim         Kind = "pvc"
	Empty         Kind = "empty"
)

// Volume is one disk of the guest.
type Volume struct {
	Kind Kind
	// Source is the image of a container disk, the name of a claim, the size of an empty disk.
	Source string
	// Name is the volume's and disk's; a name is made when it is empty.
	Name string
	// BootOrder is 1 for the first to boot from; 0 leaves the order to the firmware.
	BootOrder uint
	ReadOnly  bool
}

// FieldError is an option that no VirtualMachine can be made of.
type FieldError struct {
	// Field is the option, in the words of Options: "memory", "volume disk-a".
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// label is what a name breaks that is no DNS label.
const label = "is no name: it takes up to 63 lower-case letters, digits and -, with a letter or digit at both ends"

// VM builds the VirtualMachine. Errors are FieldErrors.
func VM(o Options) (*v1.VirtualMachine, error) {
	if len(validation.IsDNS1123Label(o.Name)) > 0 {
		return nil, invalid("name", "%q %s", o.Name, label)
	}
	strategy, err := runStrategy(o.RunStrategy)
	if err != nil {
		return nil, err
	}
	memory, err := quantity("memory", o.Memory)
	if err != nil {
		return nil, err
	}
	if o.TerminationGracePeriodSeconds < 0 {
		return nil, invalid("termination-grace-period", "%d: must not be negative", o.TerminationGracePeriodSeconds)
	}
	grace := o.TerminationGracePeriodSeconds
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				Spec: v1.VirtualMachineInstanceSpec{
					Domain:                        v1.DomainSpec{Memory: &v1.Memory{Guest: &memory}},
					TerminationGracePeriodSeconds: &grace,
				},
			},
		},
	}
	spec := &vm.Spec.Template.Spec
	if o.CPU > 0 {
		spec.Domain.CPU = &v1.CPU{Cores: o.CPU}
	}
	if err := addVolumes(spec, o); err != nil {
		return nil, err
	}
	return vm, addCloudInit(spec, o.CloudInit)
}

var runStrategies = []v1.VirtualMachineRunStrategy{
	v1.RunStrategyAlways, v1.RunStrategyHalted, v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure,
}

// RunStrategies are the names of the run strategies that a user can choose.
func RunStrategies() []string {
	out := make([]string, len(runStrategies))
	for i, s := range runStrategies {
		out[i] = string(s)
	}
	return out
}

func runStrategy(name string) (v1.VirtualMachineRunStrategy, error) {
	if name == "" {
		return DefaultRunStrategy, nil
	}
	for _, s := range runStrategies {
		if strings.EqualFold(string(s), name) {
			return s, nil
		}
	}
	return "", invalid("run-strategy", "%q is not one of %s", name, strings.Join(RunStrategies(), ", "))
}

func quantity(field, text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, invalid(field, "%q is not a quantity such as 512Mi or 10Gi", text)
	}
	if q.Sign() <= 0 {
		return q, invalid(field, "%q: must be more than 0", text)
	}
	return q, nil
}

func addVolumes(spec *v1.VirtualMachineInstanceSpec, o Options) error {
	counts := map[Kind]int{}
	orders := map[uint]string{}
	for _, v := range o.Volumes {
		if v.Name == "" {
			v.Name = generatedName(o.Name, v, counts[v.Kind])
		}
		counts[v.Kind]++
		field := "volume " + v.Name
		source, err := volumeSource(field, v)
		if err != nil {
			return err
		}
		if len(validation.IsDNS1123Label(v.Name)) > 0 {
			return invalid(field, "%q %s", v.Name, label)
		}
		if slices.ContainsFunc(spec.Volumes, func(have v1.Volume) bool { return have.Name == v.Name }) {
			return invalid(field, "another volume has the same name")
		}
		if v.BootOrder > 0 {
			if other, taken := orders[v.BootOrder]; taken {
				return invalid(field, "boot order %d is that of volume %s too", v.BootOrder, other)
			}
			orders[v.BootOrder] = v.Name
		}
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: v.Name, VolumeSource: source})
		disk := v1.Disk{Name: v.Name}
		disk.Disk = &v1.DiskTarget{Bus: v1.DiskBusVirtio, ReadOnly: v.ReadOnly}
		if v.BootOrder > 0 {
			order := v.BootOrder
			disk.BootOrder = &order
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	}
	return nil
}

func volumeSource(field string, v Volume) (v1.VolumeSource, error) {
	var source v1.VolumeSource
	switch v.Kind {
	case ContainerDisk:
		if v.Source == "" {
			return source, invalid(field, "the image is missing")
		}
		source.ContainerDisk = &v1.ContainerDiskSource{Image: v.Source}
	case Claim:
		if errs := validation.IsDNS1123Subdomain(v.Source); len(errs) > 0 {
			return source, invalid(field, "claim name %q: %s", v.Source, errs[0])
		}
		claim := &v1.PersistentVolumeClaimVolumeSource{}
		claim.ClaimName = v.Source
		claim.ReadOnly = v.ReadOnly
		source.PersistentVolumeClaim = claim
	case Empty:
		size, err := quantity(field+" size", v.Source)
		if err != nil {
			return source, err
		}
		source.EmptyDisk = &v1.EmptyDiskSource{Capacity: size}
	default:
		return source, invalid(field, "unknown kind %q", v.Kind)
	}
	return source, nil
}

// generatedName is KubeVirt's: <vm>-containerdisk-0, <vm>-pvc-<claim>; the VM's part is cut where the whole would
// be over the 63 characters of a label.
func generatedName(vm string, v Volume, n int) string {
	suffix := fmt.Sprintf("-%s-%d", v.Kind, n)
	if v.Kind == Claim {
		suffix = "-pvc-" + strings.ReplaceAll(v.Source, ".", "-")
	}
	if most := validation.DNS1123LabelMaxLength - len(suffix); len(vm) > most {
		vm = strings.TrimRight(vm[:max(most, 0)], "-")
	}
	return strings.TrimLeft(vm+suffix, "-")
}
