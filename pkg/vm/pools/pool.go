// Package pools makes the VMs of a VirtualMachinePool's template: the VirtualMachine of an ordinal, with its name, its
// labels, and the other names in it that have the ordinal. It is pure; virt-controller makes and changes VMs by it, and
// virt-api checks the VM of ordinal 0 when a pool is admitted.
package pools

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// Kind is the kind of pools.
var Kind = v1beta1.SchemeGroupVersion.WithKind(v1beta1.VirtualMachinePoolKind)

// Name returns the name of the VM of an ordinal.
func Name(pool string, ordinal int) string { return pool + "-" + strconv.Itoa(ordinal) }

// Ordinal returns the ordinal of a VM by its name; false for a name that is not one of the pool's.
func Ordinal(pool, vm string) (int, bool) {
	rest, ok := strings.CutPrefix(vm, pool+"-")
	if !ok {
		return 0, false
	}
	ordinal, err := strconv.Atoi(rest)
	return ordinal, err == nil && ordinal >= 0 && strconv.Itoa(ordinal) == rest
}

// KeepsExcess returns the strategy, "opportunistic" or "unmanaged", by which a pool deletes no VM when there are too
// many; it is empty of a pool that deletes them.
func KeepsExcess(s *v1beta1.VirtualMachinePoolScaleInStrategy) string {
	switch {
	case s == nil:
		return ""
	case s.Opportunistic != nil:
		return "opportunistic"
	case s.Unmanaged != nil:
		return "unmanaged"
	}
	return ""
}

// Replicas returns how many VMs the pool asks for.
func Replicas(pool *v1beta1.VirtualMachinePool) int {
	if pool.Spec.Replicas == nil {
		return 1
	}
	return int(*pool.Spec.Replicas)
}

// Machine returns the VM of an ordinal that a template makes; revision is the template's, by which it and its VMI
// can be distinguished from those of other templates. The template is not changed.
func Machine(pool *v1beta1.VirtualMachinePool, template *Template, ordinal int, revision string) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: Name(pool.Name, ordinal),
			Labels:          labelled(template.VirtualMachineTemplate.ObjectMeta.Labels, revision),
			Annotations:     reserved.Without(template.VirtualMachineTemplate.ObjectMeta.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, Kind)},
		},
		Spec: *template.VirtualMachineTemplate.Spec.DeepCopy(),
	}
	if vm.Spec.Template != nil { // admission asks for it
		reserved.Drop(vm.Spec.Template.ObjectMeta.Annotations)
		vm.Spec.Template.ObjectMeta.Labels = labelled(vm.Spec.Template.ObjectMeta.Labels, revision)
		number(&vm.Spec, template.NameGeneration, ordinal)
	}
	return vm
}

func labelled(labels map[string]string, revision string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	if revision != "" {
		out[v1.VirtualMachinePoolRevisionName] = revision
	}
	return out
}

// number gives the names of what is one VM's alone its ordinal: DataVolumes always, with the volumes that use them;
// ConfigMaps and Secrets of volumes where it is asked for.
func number(spec *v1.VirtualMachineSpec, generation *v1beta1.VirtualMachinePoolNameGeneration, ordinal int) {
	suffixed := func(name string) string { return name + "-" + strconv.Itoa(ordinal) }
	made := map[string]string{}
	for i := range spec.DataVolumeTemplates {
		template := &spec.DataVolumeTemplates[i]
		made[template.Name] = suffixed(template.Name)
		template.Name = made[template.Name]
	}
	suffixMaps := generation != nil && generation.AppendIndexToConfigMapRefs != nil &&
		*generation.AppendIndexToConfigMapRefs
	suffixSecrets := generation != nil && generation.AppendIndexToSecretRefs != nil &&
		*generation.AppendIndexToSecretRefs
	for i := range spec.Template.Spec.Volumes {
		source := &spec.Template.Spec.Volumes[i].VolumeSource
		if source.PersistentVolumeClaim != nil {
			if name, ok := made[source.PersistentVolumeClaim.ClaimName]; ok {
				source.PersistentVolumeClaim.ClaimName = name
			}
		}
		if source.DataVolume != nil {
			if name, ok := made[source.DataVolume.Name]; ok {
				source.DataVolume.Name = name
			}
		}
		configMaps, secrets := references(source)
		if suffixMaps {
			for _, name := range configMaps {
				*name = suffixed(*name)
			}
		}
		if suffixSecrets {
			for _, name := range secrets {
				*name = suffixed(*name)
			}
		}
	}
}

// references returns the fields in which a volume names ConfigMaps and Secrets.
func references(source *v1.VolumeSource) (configMaps, secrets []*string) {
	if source.ConfigMap != nil {
		configMaps = append(configMaps, &source.ConfigMap.Name)
	}
	if source.Secret != nil {
		secrets = append(secrets, &source.Secret.SecretName)
	}
	if data := source.CloudInitNoCloud; data != nil {
		if data.UserDataSecretRef != nil {
			secrets = append(secrets, &data.UserDataSecretRef.Name)
		}
		if data.NetworkDataSecretRef != nil {
			secrets = append(secrets, &data.NetworkDataSecretRef.Name)
		}
	}
	if data := source.CloudInitConfigDrive; data != nil {
		if data.UserDataSecretRef != nil {
			secrets = append(secrets, &data.UserDataSecretRef.Name)
		}
		if data.NetworkDataSecretRef != nil {
			secrets = append(secrets, &data.NetworkDataSecretRef.Name)
		}
	}
	if source.Sysprep != nil {
		if source.Sysprep.ConfigMap != nil {
			configMaps = append(configMaps, &source.Sysprep.ConfigMap.Name)
		}
		if source.Sysprep.Secret != nil {
			secrets = append(secrets, &source.Sysprep.Secret.Name)
		}
	}
	return configMaps, secrets
}

// Template is all of a pool that makes its VMs: what its revisions keep, under the same names as in the pool's spec.
type Template struct {
	VirtualMachineTemplate *v1beta1.VirtualMachineTemplateSpec       `json:"virtualMachineTemplate"`
	NameGeneration         *v1beta1.VirtualMachinePoolNameGeneration `json:"nameGeneration,omitempty"`
}

// TemplateOf returns a pool's template.
func TemplateOf(pool *v1beta1.VirtualMachinePool) *Template {
	return &Template{VirtualMachineTemplate: pool.Spec.VirtualMachineTemplate, NameGeneration: pool.Spec.NameGeneration}
}

// RevisionName returns the revision name of the revision of a pool's template since a generation.
func RevisionName(pool string, generation int64) string {
	return fmt.Sprintf("%s-%d", pool, generation)
}

// CompareRevisions orders revisions of one pool by their names, older ones first.
func CompareRevisions(a, b string) int {
	generation := func(name string) int {
		n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
		if err != nil {
			return -1
		}
		return n
	}
	return cmp.Or(cmp.Compare(generation(a), generation(b)), strings.Compare(a, b))
}
