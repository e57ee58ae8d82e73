package surface

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/launcherlog"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/qos"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// hookSidecars is the annotation with which KubeVirt runs containers that rewrite the domain before it starts.
const hookSidecars = "hooks.kubevirt.io/hookSidecars"

// maxAnnotations is how long the annotations of a VMI are together at most, bytes, without network.AnnotationPolicies,
// which virt-controller must always be able to write, and what the components write besides.
const maxAnnotations = apivalidation.TotalAnnotationSizeLimitB - network.MaxPolicies - 16<<10

// validateRoom refuses annotations that leave no room for those of the components, of a guest on networks of Multus.
func validateRoom(
	annotations map[string]string, networks []v1.Network, at *field.Path,
) field.ErrorList {
	if !slices.ContainsFunc(networks, func(n v1.Network) bool { return n.Multus != nil }) {
		return nil
	}
	size := 0
	for key, text := range annotations {
		if key != network.AnnotationPolicies {
			size += len(key) + len(text)
		}
	}
	if size <= maxAnnotations {
		return nil
	}
	return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("have %d bytes together, and %d are the most: virtkit "+
		"writes annotations, too; shorten them, or put long data into a Secret or ConfigMap", size, maxAnnotations))}
}

// ValidateTemplateRoom refuses annotations of a VM's template that leave no room for those of the components of its
// VMI, unless they are as before.
func ValidateTemplateRoom(vm, old *v1.VirtualMachine) field.ErrorList {
	if vm.Spec.Template == nil || old != nil && old.Spec.Template != nil &&
		maps.Equal(vm.Spec.Template.ObjectMeta.Annotations, old.Spec.Template.ObjectMeta.Annotations) {
		return nil
	}
	return validateRoom(vm.Spec.Template.ObjectMeta.Annotations, vm.Spec.Template.Spec.Networks,
		field.NewPath("spec", "template", "metadata", "annotations"))
}

// validateAnnotations checks the annotations of a VMI, or of a VM's template, that change the guest.
func validateAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if annotations[hookSidecars] != "" {
		errs = append(errs, field.Forbidden(at.Key(hookSidecars),
			unsupportedDetail()+
				" (nothing but the launcher makes the domain; remove it and set what it changed in spec.domain)"))
	}
	if config := annotations[v1.IgnitionAnnotation]; config != "" {
		// The value may hold passwords: it is in no message.
		var object map[string]any
		if err := json.Unmarshal([]byte(config), &object); err != nil || object == nil {
			errs = append(errs, field.Invalid(at.Key(v1.IgnitionAnnotation), "",
				"is not the JSON object that Ignition reads; make it from Butane's YAML with butane"))
		}
	}
	if _, err := launcherlog.ParseFilters(annotations[launcherlog.AnnotationFilters]); err != nil {
		errs = append(errs, field.Invalid(at.Key(launcherlog.AnnotationFilters),
			annotations[launcherlog.AnnotationFilters],
			err.Error()+"; write libvirt's log filters with spaces between, such as 3:remote 3:rpc 1:qemu"))
	}
	return errs
}

// validateLogLabels checks the labels that say how much a launcher logs.
func validateLogLabels(labels map[string]string, at *field.Path) field.ErrorList {
	text, ok := labels[launcherlog.LabelVerbosity]
	if !ok {
		return nil
	}
	if _, err := launcherlog.Verbosity(text); err != nil {
		return field.ErrorList{field.Invalid(at.Key(launcherlog.LabelVerbosity), text,
			err.Error()+", which is how much the launcher logs")}
	}
	return nil
}

// withoutEffect are annotations of KubeVirt's that people set, and what there is instead. They do not change what the
// guest sees, so that an object with one is admitted, with a warning.
var withoutEffect = map[string]string{
	v1.KeepLauncherAfterFailureAnnotation: "a launcher pod whose guest failed stays until its instance goes; see " +
		"`virtctl logs`",
	v1.PlacePCIDevicesOnRootComplex: "devices are behind PCIe root ports, where they can be plugged and " +
		"unplugged",
	v1.MemfdMemoryBackend:                  "the kind of guest memory follows from what the guest needs",
	v1.FuncTestLauncherFailFastAnnotation:  "it is for KubeVirt's own tests",
	v1.FuncTestMemoryHotplugFailAnnotation: "it is for KubeVirt's own tests",
	v1.DeprecatedNonRootVMIAnnotation:      "no guest runs as root",
	v1.MigrationTransportUnixAnnotation:    "guests move over the virt-handlers of the nodes",
}

// Warnings returns, as sentences in order, what a VMI, or a VM's template at path, has that is accepted although it
// does nothing or little good. Defaults need not be set in the spec.
func Warnings(path string, annotations map[string]string, spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	if guest, known := sizing.Memory(&spec.Domain); known && guest.Sign() > 0 {
		least, firmware := leastMemory(&spec.Domain)
		if guest.CmpInt64(least) < 0 {
			out = append(out,
				fmt.Sprintf("%sspec.domain.memory.guest: %s is too little for a guest with %s firmware to "+
					"boot; that takes %dMi", path, guest.String(), firmware, least>>20))
		}
	}
	for name, instead := range withoutEffect {
		if _, ok := annotations[name]; ok {
			out = append(out,
				fmt.Sprintf("%smetadata.annotations[%s] has no effect in virtkit: %s", path, name, instead))
		}
	}
	out = append(out, networkWarnings(spec, path)...)
	slices.Sort(out)
	return out
}

// MachineWarnings returns Warnings for a VM, and what of it is deprecated.
func MachineWarnings(vm *v1.VirtualMachine) []string {
	var out []string
	if vm.Spec.Running != nil {
		out = append(out, "spec.running is deprecated; use spec.runStrategy")
	}
	for _, key := range slices.Sorted(maps.Keys(vm.Annotations)) {
		if qos.Is(key) {
			out = append(out, fmt.Sprintf("metadata.annotations[%s] limits nothing: rate limits are among "+
				"spec.template.metadata.annotations", key))
		}
	}
	if vm.Spec.Template == nil {
		return out
	}
	template := vm.Spec.Template
	if _, given := sizing.Memory(&template.Spec.Domain); !given && vm.Spec.Instancetype == nil {
		out = append(out,
			"spec.template.spec.domain.memory.guest is not set, and there is no instance type: the VM cannot "+
				"start before one of them is")
	}
	return append(out, Warnings("spec.template.", template.ObjectMeta.Annotations, &template.Spec)...)
}
