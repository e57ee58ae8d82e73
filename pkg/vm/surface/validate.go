package surface

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// Actor says who asks for a change.
type Actor struct {
	// Component is set for virt-controller and virt-handler, which own fields that users may not touch.
	Component bool
	// API is set for virt-api, which may shorten or lengthen a VMI's grace period when a user
	// stops it so, and add and remove hotplugged volumes.
	API bool
}

// ActorOf distinguishes the components from everybody else by the user name of a request.
func ActorOf(username string) Actor {
	prefix := "system:serviceaccount:" + names.Namespace + ":"
	name, ok := strings.CutPrefix(username, prefix)
	return Actor{
		Component: ok && (name == names.VirtController || name == names.VirtHandler),
		API:       ok && name == names.VirtAPI,
	}
}

// reservedLabels are the labels on a VMI by which the components find it and its pod; a user who could set them could
// have another node's virt-handler act on it.
var reservedLabels = []string{
	v1.AppLabel, v1.CreatedByLabel, v1.NodeNameLabel, v1.MigrationJobLabel, v1.MigrationNameLabel,
	v1.MigrationTargetNodeNameLabel, v1.OutdatedLauncherImageLabel,
}

// ValidateVirtualMachine checks a VirtualMachine as DefaultVirtualMachine left it. The VMI it would
// make is checked with all the defaults of d.
func ValidateVirtualMachine(vm *v1.VirtualMachine, d Defaults) field.ErrorList {
	if vm.Spec.Template == nil {
		return ValidateExpanded(vm, nil, d)
	}
	return ValidateExpanded(vm, &vm.Spec.Template.Spec, d)
}

// ValidateExpanded does what ValidateVirtualMachine does, for a VM whose template is not all there is: expanded is the
// template's spec with the VM's instance type and preference written into it.
func ValidateExpanded(vm *v1.VirtualMachine, expanded *v1.VirtualMachineInstanceSpec, d Defaults) field.ErrorList {
	errs := validateName(vm.Name, vm.GenerateName)
	spec := field.NewPath("spec")
	errs = append(errs, unsupported(vm.Spec, machineTree(), spec)...)
	switch {
	case vm.Spec.Running != nil && vm.Spec.RunStrategy != nil:
		errs = append(errs, field.Forbidden(spec.Child("running"),
			"cannot be set together with spec.runStrategy; remove running, which is deprecated"))
	case vm.Spec.Running == nil && vm.Spec.RunStrategy == nil:
		errs = append(errs, field.Required(spec.Child("runStrategy"), "is not set; use "+alternatives(runStrategies)))
	case vm.Spec.RunStrategy != nil && *vm.Spec.RunStrategy == "":
		errs = append(errs, field.Invalid(spec.Child("runStrategy"), "", "is empty; use "+alternatives(runStrategies)))
	}
	if vm.Spec.Template == nil {
		return append(errs, field.Required(spec.Child("template"), "is not set; it describes the guest"))
	}
	template := spec.Child("template")
	errs = append(errs, validateTemplateMeta(vm.Spec.Template.ObjectMeta, template.Child("metadata"))...)
	if vm.Spec.Instancetype != nil || vm.Spec.Preference != nil {
		errs = append(errs, foreign(vm, expanded, template.Child("spec"))...)
	}
	errs = append(errs, validateDataVolumeTemplates(vm, expanded.Volumes, spec.Child("dataVolumeTemplates"))...)
	instance := expanded.DeepCopy()
	defaultSpec(instance, d)
	standIn(&instance.Domain)
	errs = append(errs, validateDeviceAnnotations(vm.Namespace, vm.Spec.Template.ObjectMeta.Annotations, nil, instance,
		template.Child("metadata", "annotations"))...)
	return append(errs, validateSpec(instance, template.Child("spec"))...)
}

// validateTemplateMeta checks the metadata that a VM's or a replica set's template gives each VMI.
func validateTemplateMeta(meta metav1.ObjectMeta, path *field.Path) field.ErrorList {
	labels, annotations := path.Child("labels"), path.Child("annotations")
	errs := metavalidation.ValidateLabels(meta.Labels, labels)
	errs = append(errs, apivalidation.ValidateAnnotations(meta.Annotations, annotations)...)
	errs = append(errs, validateReserved(reservedLabels, meta.Labels, nil, labels)...)
	errs = append(errs, validateAnnotations(meta.Annotations, annotations)...)
	return append(errs, validateLogLabels(meta.Labels, labels)...)
}

// standIn gives a VM's guest memory for the checks where nothing says how much: as in KubeVirt that is looked for when
// the VM starts.
func standIn(domain *v1.DomainSpec) {
	if _, given := sizing.Memory(domain); given {
		return
	}
	if domain.Memory == nil {
		domain.Memory = &v1.Memory{}
	}
	domain.Memory.Guest = resource.NewQuantity(1<<30, resource.BinarySI)
}

// foreign reports what is not supported and comes from the instance type or preference.
func foreign(vm *v1.VirtualMachine, expanded *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	own := map[string]bool{}
	for _, err := range unsupported(vm.Spec.Template.Spec, instanceTree(), path) {
		own[err.Field] = true
	}
	var errs field.ErrorList
	for _, err := range unsupported(*expanded, instanceTree(), path) {
		if !own[err.Field] {
			err.Detail += "; the VM's instance type or preference asks for it"
			errs = append(errs, err)
		}
	}
	return errs
}

// Settled reports a change that is not checked: one that leaves the spec as it was, so that an object admitted by an
// older virtkit can still be labelled, finalized and deleted.
func Settled(vm, old *v1.VirtualMachine) bool {
	return old != nil && (vm.DeletionTimestamp != nil || reflect.DeepEqual(vm.Spec, old.Spec))
}

// ValidateVirtualMachineUpdate checks a change, unless it is Settled.
func ValidateVirtualMachineUpdate(vm, old *v1.VirtualMachine, d Defaults) field.ErrorList {
	if Settled(vm, old) {
		return nil
	}
	return ValidateVirtualMachine(vm, d)
}

// ValidateVirtualMachineInstance checks a new VMI as DefaultVirtualMachineInstance left it.
func ValidateVirtualMachineInstance(vmi *v1.VirtualMachineInstance, by Actor) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateName(vmi.Name, vmi.GenerateName)
	errs = append(errs, unsupported(vmi.Spec, instanceTree(), spec)...)
	errs = append(errs, validateAnnotations(vmi.Annotations, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateDeviceAnnotations(vmi.Namespace, vmi.Annotations, nil, &vmi.Spec,
		field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateLogLabels(vmi.Labels, field.NewPath("metadata", "labels"))...)
	if !by.Component {
		metadata := field.NewPath("metadata")
		errs = append(errs, validateReserved(reservedLabels, vmi.Labels, nil, metadata.Child("labels"))...)
		errs = append(errs, reserved.Validate(reserved.VMI, vmi.Annotations, nil, metadata.Child("annotations"))...)
		errs = append(errs, validateRoom(vmi.Annotations, vmi.Spec.Networks, metadata.Child("annotations"))...)
	}
	return append(errs, validateSpec(&vmi.Spec, spec)...)
}

// settledAnnotations are those on a VMI that its author gives it at creation, and that are the components' from then
// on: the addresses that are its guest's alone on their networks.
var settledAnnotations = []string{ipaddress.Wish, ipaddress.Annotation}

// ValidateVirtualMachineInstanceUpdate checks a change: the spec of a VMI and its addresses never change, its
// reserved labels and annotations are the components', and its rate limits may change.
func ValidateVirtualMachineInstanceUpdate(vmi, old *v1.VirtualMachineInstance, by Actor) field.ErrorList {
	if by.Component {
		return nil
	}
	errs := validateReserved(reservedLabels, vmi.Labels, old.Labels, field.NewPath("metadata", "labels"))
	errs = append(errs, validateReserved(settledAnnotations, vmi.Annotations, old.Annotations,
		field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validateOwn(vmi, old, by)...)
	errs = append(errs, validateDeviceAnnotations(vmi.Namespace, vmi.Annotations, old.Annotations, &vmi.Spec,
		field.NewPath("metadata", "annotations"))...)
	if !maps.Equal(vmi.Annotations, old.Annotations) {
		errs = append(errs, validateRoom(vmi.Annotations, vmi.Spec.Networks,
			field.NewPath("metadata", "annotations"))...)
	}
	before, after := &old.Spec, &vmi.Spec
	if by.API {
		// It may change the grace period, and which volumes are plugged in.
		same := *old.Spec.DeepCopy()
		same.TerminationGracePeriodSeconds = vmi.Spec.TerminationGracePeriodSeconds
		before, after = hotplug.Without(&same), hotplug.Without(&vmi.Spec)
		if !reflect.DeepEqual(vmi.Spec, same) {
			spec := field.NewPath("spec")
			asked := *hotplug.WithoutDumps(&vmi.Spec) // which nobody asks for in a spec
			errs = append(errs, unsupported(asked, instanceTree(), spec)...)
			errs = append(errs, validateSpec(&asked, spec)...)
		}
	}
	if !equality.Semantic.DeepEqual(after, before) {
		detail := "cannot be changed while the instance exists; delete it and create another"
		if owner := ownerOf(vmi); owner != "" {
			detail = fmt.Sprintf("cannot be changed while the instance exists; change the VirtualMachine %q and "+
				"restart it", owner)
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec"), detail))
	}
	return errs
}

// validateOwn refuses changes of the components' annotations. virt-api writes one of them, with the volumes.
func validateOwn(vmi, old *v1.VirtualMachineInstance, by Actor) field.ErrorList {
	before := old.Annotations
	if value, ok := vmi.Annotations[reserved.DeclaredVolumes]; ok && by.API {
		before = map[string]string{}
		maps.Copy(before, old.Annotations)
		before[reserved.DeclaredVolumes] = value
	}
	return reserved.Validate(reserved.VMI, vmi.Annotations, before, field.NewPath("metadata", "annotations"))
}

func ownerOf(vmi *v1.VirtualMachineInstance) string {
	for _, owner := range vmi.OwnerReferences {
		if owner.Kind == v1.VirtualMachineGroupVersionKind.Kind && owner.Controller != nil && *owner.Controller {
			return owner.Name
		}
	}
	return ""
}

// ValidateKubeVirt checks the configuration. old is nil at creation; a change elsewhere than in the spec
// always passes.
func ValidateKubeVirt(kv, old *v1.KubeVirt) field.ErrorList {
	if old != nil && (kv.DeletionTimestamp != nil || reflect.DeepEqual(kv.Spec, old.Spec)) {
		return nil
	}
	spec := field.NewPath("spec")
	errs := unsupported(kv.Spec, kubeVirtTree(), spec)
	configuration := spec.Child("configuration")
	if old == nil && (kv.Namespace != names.Namespace || kv.Name != names.KubeVirt) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
			fmt.Sprintf("only %s/%s is read; edit that one", names.Namespace, names.KubeVirt)))
	}
	update, at := kv.Spec.WorkloadUpdateStrategy, spec.Child("workloadUpdateStrategy")
	if n := update.BatchEvictionSize; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at.Child("batchEvictionSize"), *n,
			"must be 1 or more; leave Evict out of workloadUpdateMethods to evict none"))
	}
	if d := update.BatchEvictionInterval; d != nil && d.Duration < 0 {
		errs = append(errs,
			field.Invalid(at.Child("batchEvictionInterval"), d.Duration.String(), "must not be negative"))
	}
	errs = append(errs, validateMachineType(kv.Spec.Configuration.MachineType, configuration.Child("machineType"))...)
	if arch := kv.Spec.Configuration.ArchitectureConfiguration; arch != nil && arch.Amd64 != nil {
		errs = append(errs, validateMachineType(arch.Amd64.MachineType,
			configuration.Child("architectureConfiguration", "amd64", "machineType"))...)
	}
	errs = append(errs, validateCPUModel(kv.Spec.Configuration.CPUModel, configuration.Child("cpuModel"))...)
	errs = append(errs, validateSMBIOS(kv.Spec.Configuration.SMBIOSConfig, configuration.Child("smbios"))...)
	errs = append(errs, validateBindingPlugins(kv.Spec.Configuration.NetworkConfiguration,
		configuration.Child("network", "binding"))...)
	errs = append(errs, validateMachines(&kv.Spec.Configuration, configuration)...)
	errs = append(errs, validatePermittedDevices(kv.Spec.Configuration.PermittedHostDevices,
		configuration.Child("permittedHostDevices"))...)
	errs = append(errs, validateRateLimits(&kv.Spec.Configuration, configuration)...)
	errs = append(errs, validatePlacement(&kv.Spec, spec)...)
	errs = append(errs, validatePods(&kv.Spec.Configuration, configuration)...)
	if request := kv.Spec.Configuration.CPURequest; request != nil && request.Sign() < 0 {
		errs = append(errs, field.Invalid(configuration.Child("cpuRequest"), request.String(), "must not be negative"))
	}
	if developer := kv.Spec.Configuration.DeveloperConfiguration; developer != nil {
		path := configuration.Child("developerConfiguration")
		if n := developer.CPUAllocationRatio; n < 0 {
			errs = append(errs, field.Invalid(path.Child("cpuAllocationRatio"), n, "must not be negative"))
		}
		if n := developer.MemoryOvercommit; n < 0 {
			errs = append(errs,
				field.Invalid(path.Child("memoryOvercommit"), n, "must not be negative; it is a percentage"))
		}
		errs = append(errs, metavalidation.ValidateLabels(developer.NodeSelectors, path.Child("nodeSelectors"))...)
		if frequency := developer.MinimumClusterTSCFrequency; frequency != nil && *frequency <= 0 {
			errs = append(errs, field.Invalid(path.Child("minimumClusterTSCFrequency"), *frequency,
				"must be ticks a second, more than 0; leave it out for the lowest of the nodes'"))
		}
	}
	return append(errs,
		validateMigrations(kv.Spec.Configuration.MigrationConfiguration, configuration.Child("migrations"))...)
}

// validateName checks what the API server does not: the name must fit into a label, where the pod
// carries it.
func validateName(name, generateName string) field.ErrorList {
	path := field.NewPath("metadata", "name")
	if name == "" {
		if generateName == "" {
			return field.ErrorList{field.Required(path, "is not set")}
		}
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("%q is not a name: %s", name, problems[0]))}
	}
	return nil
}

// validateReserved reports reserved labels or annotations that are not as they were.
func validateReserved(keys []string, labels, before map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		value, is := labels[key]
		if was, had := before[key]; is != had || value != was {
			errs = append(errs, field.Forbidden(path.Key(key), "is set by virtkit itself; leave it as it is"))
		}
	}
	return errs
}

// validateSpec checks a VMI's spec that has all its defaults.
func validateSpec(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateDomain(&spec.Domain, path.Child("domain"))...)
	errs = append(errs, validateDisks(spec, path)...)
	errs = append(errs, validateFilesystems(spec, path)...)
	errs = append(errs, validateVolumes(spec.Volumes, path.Child("volumes"))...)
	errs = append(errs, validateInterfaces(spec, path)...)
	errs = append(errs, validateBootOrder(&spec.Domain.Devices, path.Child("domain", "devices"))...)
	errs = append(errs, validateAddresses(spec, path)...)
	errs = append(errs, validateTags(spec, path)...)
	errs = append(errs, validateTables(spec, path)...)
	errs = append(errs, validateScheduling(spec, path)...)
	errs = append(errs, validateCredentials(spec, path)...)
	errs = append(errs, validateProbes(spec, path)...)
	return errs
}
