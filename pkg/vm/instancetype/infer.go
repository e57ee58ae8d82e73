package instancetype

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Infer replaces each inferFromVolume of vm by the name and kind that the volume's claim carries in its labels,
// or what that is going to be cloned from. A
// matcher whose policy is Ignore is dropped when there are none; else that is a *NotFoundError. Guest memory that
// only stood in for an instance type goes when one is found.
func Infer(ctx context.Context, r Reader, vm *v1.VirtualMachine) error {
	for _, m := range matchers(vm) {
		if m.inferFrom == "" {
			continue
		}
		ignore := m.inferFailurePolicy != nil && *m.inferFailurePolicy == v1.IgnoreInferFromVolumeFailure
		name, kind, problem, err := m.infer(ctx, r, vm)
		if err != nil {
			return err
		}
		if problem != "" && !ignore {
			return &NotFoundError{Role: m.role, Field: m.field.Child("inferFromVolume"), Detail: problem}
		}
		if m.role == Preference {
			vm.Spec.Preference = &v1.PreferenceMatcher{Name: name, Kind: kind}
			if problem != "" {
				vm.Spec.Preference = nil
			}
			continue
		}
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: name, Kind: kind}
		switch {
		case problem != "":
			vm.Spec.Instancetype = nil
		case ignore && vm.Spec.Template != nil:
			vm.Spec.Template.Spec.Domain.Memory = nil
		}
	}
	return nil
}

// labelled is something whose labels may name an instance type and a preference, as an error calls it.
type labelled struct {
	what   string
	labels map[string]string
}

// infer reads the labels of the claim behind the volume, or says why there is nothing to infer.
func (m matcher) infer(ctx context.Context, r Reader, vm *v1.VirtualMachine) (name, kind, problem string, err error) {
	nameLabel, kindLabel := api.DefaultInstancetypeLabel, api.DefaultInstancetypeKindLabel
	if m.role == Preference {
		nameLabel, kindLabel = api.DefaultPreferenceLabel, api.DefaultPreferenceKindLabel
	}
	volume, problem := volumeNamed(vm, m.inferFrom)
	if problem != "" {
		return "", "", problem, nil
	}
	found, problem, err := behind(ctx, r, vm, volume)
	if err != nil || problem != "" {
		return "", "", problem, err
	}
	what := ""
	for _, object := range found {
		if object.labels[nameLabel] != "" {
			return object.labels[nameLabel], object.labels[kindLabel], "", nil
		}
		what = object.what
	}
	return "", "", fmt.Sprintf("%s, of volume %q, has no label %s", what, m.inferFrom, nameLabel), nil
}

// volumeNamed returns the VM's volume of a name, which must be a claim or DataVolume.
func volumeNamed(vm *v1.VirtualMachine, name string) (volume *v1.Volume, problem string) {
	if vm.Spec.Template == nil {
		return nil, "there is no template with volumes"
	}
	volumes := vm.Spec.Template.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v v1.Volume) bool { return v.Name == name })
	switch {
	case i < 0:
		return nil, fmt.Sprintf("no volume is named %q", name)
	case claims.Of(&volumes[i]) == nil:
		return nil, fmt.Sprintf("volume %q is no PersistentVolumeClaim, whose labels would tell", name)
	}
	return &volumes[i], ""
}

// behind returns what may be labelled of a volume, the last one being the one that has to be: its claim; or, of one
// that the VM has a template for and that is not there yet, the template, the DataSource that it names, and the claim
// that is cloned.
func behind(
	ctx context.Context, r Reader, vm *v1.VirtualMachine, volume *v1.Volume,
) (found []labelled, problem string, err error) {
	name := claims.Name(volume)
	templates := vm.Spec.DataVolumeTemplates
	i := slices.IndexFunc(templates, func(t v1.DataVolumeTemplateSpec) bool { return t.Name == name })
	if i < 0 || volume.DataVolume == nil {
		return readClaim(ctx, r, vm.Namespace, name, volume.Name)
	}
	found = []labelled{{fmt.Sprintf("dataVolumeTemplate %q", name), templates[i].Labels}}
	spec, namespace := templates[i].Spec, vm.Namespace
	var cloned *cdiv1.DataVolumeSourcePVC
	switch {
	case spec.SourceRef != nil && spec.SourceRef.Kind == cdiv1.DataVolumeDataSource:
		if spec.SourceRef.Namespace != nil && *spec.SourceRef.Namespace != "" {
			namespace = *spec.SourceRef.Namespace
		}
		what := fmt.Sprintf("DataSource %s/%s", namespace, spec.SourceRef.Name)
		source := &cdiv1.DataSource{}
		err := r.Read(ctx, namespace, spec.SourceRef.Name, source)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Sprintf("%s, of volume %q, does not exist", what, volume.Name), nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("read %s: %w", what, err)
		}
		found = append(found, labelled{what, source.Labels})
		cloned = source.Spec.Source.PVC
	case spec.Source != nil:
		cloned = spec.Source.PVC
	}
	// One whose own labels say it need not be followed further, to where there may be nothing.
	last := found[len(found)-1]
	if cloned == nil || last.labels[api.DefaultInstancetypeLabel] != "" ||
		last.labels[api.DefaultPreferenceLabel] != "" {
		return found, "", nil
	}
	more, problem, err := readClaim(ctx, r, cmp.Or(cloned.Namespace, namespace), cloned.Name, volume.Name)
	return append(found, more...), problem, err
}

func readClaim(
	ctx context.Context, r Reader, namespace, name, volume string,
) (found []labelled, problem string, err error) {
	pvc := &corev1.PersistentVolumeClaim{}
	err = r.Read(ctx, namespace, name, pvc)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("PersistentVolumeClaim %q, of volume %q, does not exist", name, volume), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read PersistentVolumeClaim %s: %w", name, err)
	}
	return []labelled{{fmt.Sprintf("PersistentVolumeClaim %q", name), pvc.Labels}}, "", nil
}
