package exportcontroller

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// maxManifests bounds what goes into a Secret, bytes.
const maxManifests = 900 << 10

// Manifests returns the objects from which another cluster, with CDI, makes the VM of an export: the authority of the
// server's certificate, the VM, and a DataVolume for each of its disks that reads it from the export. They name no
// namespace, so that they can be applied to any. JSON is a v1 List, YAML a document each.
func Manifests(view View, certificate string) (asJSON, asYAML []byte, err error) {
	authority := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: names.ExportAuthority + view.Export.Name},
		Data:       map[string]string{"ca.pem": certificate},
	}
	vm := &v1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: exports.KindVM},
		ObjectMeta: metav1.ObjectMeta{
			Name: view.VM.Name, Labels: view.VM.Labels, Annotations: reserved.Without(view.VM.Annotations),
		},
		Spec: *view.VM.Spec.DeepCopy(),
	}
	delete(vm.Annotations, corev1.LastAppliedConfigAnnotation)
	reserved.Drop(vm.Spec.Template.ObjectMeta.Annotations)
	objects := []any{authority, vm}
	templates := map[string]*cdiv1.DataVolumeSpec{}
	for i := range vm.Spec.DataVolumeTemplates {
		template := &vm.Spec.DataVolumeTemplates[i]
		templates[template.Name] = &template.Spec
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := &vm.Spec.Template.Spec.Volumes[i]
		claim := view.claimOf(claims.Name(volume))
		if claim == nil || claim.Content == exports.Files {
			continue // an image of it is not what CDI reads
		}
		source := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
			URL: "https://" + exports.Host(view.Export.Namespace, view.Export.Name) +
				exports.VolumePath(claim.Name) + names.ExportGzip,
			CertConfigMap:      authority.Name,
			SecretExtraHeaders: []string{names.ExportHeaderSecret + view.Export.Name},
		}}
		if spec := templates[claims.Name(volume)]; spec != nil {
			spec.Source, spec.SourceRef = source, nil
			continue
		}
		objects = append(objects, &cdiv1.DataVolume{
			TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"},
			ObjectMeta: metav1.ObjectMeta{Name: claims.Name(volume)},
			Spec:       cdiv1.DataVolumeSpec{Source: source, PVC: claim.template()},
		})
	}
	return encode(objects)
}

// claimOf returns the claim that a volume of the VM was before it was exported.
func (v *View) claimOf(name string) *Claim {
	for i := range v.Claims {
		claim := &v.Claims[i]
		if name != "" && claim.Name == name {
			return claim
		}
	}
	return nil
}

// template returns a claim like this one, of any class.
func (c *Claim) template() *corev1.PersistentVolumeClaimSpec {
	spec := &corev1.PersistentVolumeClaimSpec{}
	switch {
	case c.Backup != nil:
		spec = &c.Backup.PersistentVolumeClaim.Spec
	case c.Claim != nil:
		spec = &c.Claim.Spec
	}
	return &corev1.PersistentVolumeClaimSpec{
		AccessModes: spec.AccessModes, VolumeMode: spec.VolumeMode,
		Resources: corev1.VolumeResourceRequirements{Requests: spec.Resources.Requests},
	}
}

// encode leaves out what only a stored object has.
func encode(objects []any) (asJSON, asYAML []byte, err error) {
	var items []map[string]any
	var documents bytes.Buffer
	for _, object := range objects {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, nil, fmt.Errorf("encode %T: %w", object, err)
		}
		delete(item, "status")
		items = append(items, withoutTimes(item).(map[string]any))
		document, err := yaml.Marshal(item)
		if err != nil {
			return nil, nil, fmt.Errorf("encode %T: %w", object, err)
		}
		documents.Write(document)
		documents.WriteString("---\n")
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if asJSON, err = json.MarshalIndent(list, "", "    "); err != nil {
		return nil, nil, fmt.Errorf("encode the manifests: %w", err)
	}
	if len(asJSON)+documents.Len() > maxManifests {
		return nil, nil, fmt.Errorf("the manifests have %d bytes, which are too many for a Secret",
			len(asJSON)+documents.Len())
	}
	return asJSON, documents.Bytes(), nil
}

// withoutTimes takes out times of creation that are null, as of every template.
func withoutTimes(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if at, ok := value["creationTimestamp"]; ok && at == nil {
			delete(value, "creationTimestamp")
		}
		for _, inner := range value {
			withoutTimes(inner)
		}
	case []any:
		for _, inner := range value {
			withoutTimes(inner)
		}
	}
	return value
}
