// Package create builds VirtualMachines from what a user says about them. It is pure: the same Options give the
// same object, byte for byte. `virtctl create vm` prints or applies it.
package create

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
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
	// Memory is what the guest sees, as a quantity: 2Gi. MemoryGiven says that the user chose it, so that no
	// instance type is to be inferred.
	Memory      string
	MemoryGiven bool
	// CPU is the number of cores; 0 leaves it to the server, which gives one.
	CPU                           uint32
	TerminationGracePeriodSeconds int64
	// Instancetype and Preference are NAME or KIND/NAME.
	Instancetype, Preference           string
	InferInstancetype, InferPreference Inference
	Volumes                            []Volume
	// DiskBus is one of DiskBuses; empty leaves it to the preference or the server.
	DiskBus           string
	Sysprep           Sysprep
	CloudInit         CloudInit
	AccessCredentials []AccessCredential
	// MAC is the address of the guest's interface on the pod network; empty leaves it to the server, which gives one
	// that nobody has and that stays.
	MAC string
	// Networks are further interfaces on networks of Multus, each with a bridge, in their order.
	Networks []Network
	// IPs are the addresses that interfaces are to have, by the interface's name.
	IPs map[string][]string
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
	if len(validation.IsDNS1123Subdomain(o.Name)) > 0 {
		return nil, invalid("name", "%q is no name: it takes up to 253 lower-case letters, digits, - and ., with a "+
			"letter or digit at both ends", o.Name)
	}
	strategy, err := runStrategy(o.RunStrategy)
	if err != nil {
		return nil, err
	}
	memory, err := memoryOf(o.Memory)
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
	if err := refer(vm, o); err != nil {
		return nil, err
	}
	if err := addMAC(spec, o.MAC); err != nil {
		return nil, err
	}
	if err := addNetworks(spec, o.Networks); err != nil {
		return nil, err
	}
	if err := addIPs(vm.Namespace, vm.Spec.Template, o.IPs); err != nil {
		return nil, err
	}
	if err := addVolumes(vm, o); err != nil {
		return nil, err
	}
	if err := addSysprep(spec, o.Sysprep); err != nil {
		return nil, err
	}
	if err := addAccessCredentials(spec, &o); err != nil {
		return nil, err
	}
	if err := addCloudInit(spec, o.CloudInit); err != nil {
		return nil, err
	}
	if err := infer(vm, o); err != nil {
		return nil, err
	}
	if err := chooseBuses(vm, o.DiskBus); err != nil {
		return nil, err
	}
	return vm, nil
}

// addMAC lists the interface that a guest without any is given, with a MAC address of the user's.
func addMAC(spec *v1.VirtualMachineInstanceSpec, mac string) error {
	if mac == "" {
		return nil
	}
	if err := macaddress.Check(mac); err != nil {
		return invalid("mac", "%v", err)
	}
	nic := *v1.DefaultMasqueradeNetworkInterface()
	nic.MacAddress = macaddress.Normal(mac)
	spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	return nil
}

var runStrategies = []v1.VirtualMachineRunStrategy{
	v1.RunStrategyAlways, v1.RunStrategyHalted, v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure,
}

// RunStrategies returns the names of the run strategies that a user can choose.
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

func memoryOf(text string) (resource.Quantity, error) { return quantity("memory", text) }

// quantity reads a size of memory or of a disk.
func quantity(field, text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, invalid(field, "%q is not a quantity such as 512Mi or 10Gi", text)
	}
	if q.Sign() <= 0 {
		return q, invalid(field, "%q: must be more than 0", text)
	}
	if sizing.NoUnit(q) {
		return q, invalid(field, "%s is less than 1Mi; a quantity has a unit, such as 2Gi or 512Mi", text)
	}
	return q, nil
}
