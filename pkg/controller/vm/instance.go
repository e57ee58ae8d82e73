package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/hotplug"
)

// TemplateHashAnnotation is on a VM's VMI: what the template was when it was made, so that a later
// change can be told from one that concerns the VM only, without keeping the old template.
const TemplateHashAnnotation = "virtkit.io/template-hash"

// firmwareNamespace is KubeVirt's: a VM keeps its UUID, and with it software licences, when it moves
// from there.
var firmwareNamespace = uuid.MustParse("6a1a24a1-4061-4607-8bf4-a3963d0c5895")

// Instance is the VMI that a VM's template describes.
func Instance(vm *v1.VirtualMachine, paused bool) (*v1.VirtualMachineInstance, error) {
	return instanceOf(vm, vm.Spec.Template, paused)
}

// instanceOf is Instance for a VM whose instance type and preference were written into template.
func instanceOf(vm *v1.VirtualMachine, template *v1.VirtualMachineInstanceTemplateSpec, paused bool) (*v1.VirtualMachineInstance, error) {
	hash, err := templateHash(vm)
	if err != nil {
		return nil, err
	}
	template = template.DeepCopy()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:        vm.Name,
			Namespace:   vm.Namespace,
			Labels:      map[string]string{},
			Annotations: map[string]string{},
			// Also set at admission; here so that there is no moment without.
			Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind),
			},
		},
		Spec: template.Spec,
	}
	if len(vm.Name) <= 63 {
		vmi.Labels[v1.VirtualMachineLabel] = vm.Name
	}
	maps.Copy(vmi.Labels, template.ObjectMeta.Labels)
	maps.Copy(vmi.Annotations, template.ObjectMeta.Annotations)
	vmi.Annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	vmi.Annotations[TemplateHashAnnotation] = hash
	if paused {
		strategy := v1.StartStrategyPaused
		vmi.Spec.StartStrategy = &strategy
	}
	if vmi.Spec.Domain.Firmware == nil {
		vmi.Spec.Domain.Firmware = &v1.Firmware{}
	}
	if vmi.Spec.Domain.Firmware.UUID == "" {
		vmi.Spec.Domain.Firmware.UUID = types.UID(uuid.NewSHA1(firmwareNamespace, []byte(vm.Name)).String())
	}
	return vmi, nil
}

// RestartRequired reports whether the VM's template is another than the one that its VMI was made
// from. A VMI that does not tell, such as an adopted one, is taken to be current.
func RestartRequired(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	made := vmi.Annotations[TemplateHashAnnotation]
	if made == "" || vmi.Annotations[v1.VirtualMachineGenerationAnnotation] == strconv.FormatInt(vm.Generation, 10) {
		return false
	}
	hash, err := templateHash(vm)
	return err == nil && hash != made || reappears(vm, vmi)
}

// templateHash does not count what is plugged in while the guest runs, nor the links of its interfaces: that needs no restart.
func templateHash(vm *v1.VirtualMachine) (string, error) {
	data, err := json.Marshal(linkless(hotplug.Without(&vm.Spec.Template.Spec)))
	if err != nil {
		return "", fmt.Errorf("encode spec.template.spec: %w", err)
	}
	if refers(vm) {
		references, err := json.Marshal([]any{vm.Spec.Instancetype, vm.Spec.Preference})
		if err != nil {
			return "", fmt.Errorf("encode spec.instancetype and spec.preference: %w", err)
		}
		data = append(data, references...)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// observedGeneration is the VM's generation that its VMI was made from; 0 when unknown.
func observedGeneration(vmi *v1.VirtualMachineInstance) int64 {
	generation, err := strconv.ParseInt(vmi.Annotations[v1.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}
