package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// objects answers reads by the end of their path: with metadata, with an object, or an error.
type objects map[string]any

func (o objects) ReadMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	return out, o.Read(ctx, path, nil, out)
}

func (o objects) Read(_ context.Context, path string, _ url.Values, into any) error {
	for end, answer := range o {
		if !strings.HasSuffix(path, end) {
			continue
		}
		if err, is := answer.(error); is {
			return err
		}
		if meta, is := answer.(metav1.ObjectMeta); is {
			answer = metav1.PartialObjectMetadata{ObjectMeta: meta}
		}
		data, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, into)
	}
	return apierrors.NewNotFound(schema.GroupResource{}, path)
}

// What becomes of the claims that a guest has left behind.
func TestLeftBy(t *testing.T) {
	ownedBy := func(version, kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
			APIVersion: version, Kind: kind, Name: "its",
		}}}
	}
	now := metav1.Now()
	says := func(value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{volumemigration.CopiedClaimsAnnotation: value}}
	}
	templated := &v1.VirtualMachine{}
	templated.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: says("Delete")}
	doomed := says("Delete")
	doomed.DeletionTimestamp = &now
	local := &corev1.PersistentVolumeClaim{}
	local.Spec.StorageClassName = new("local")
	const web, class = "/virtualmachines/web", "/storageclasses/local"
	const deleted = "deleted by virt-controller if nobody else has it, as annotation virtkit.io/copied-claims says"
	const kept = "; `kubectl delete pvc home -n ns` deletes it"
	const hidden = "kept, unless annotation virtkit.io/copied-claims of class local, which could not be read, says " +
		"Delete"
	claim, dv := "/ns/persistentvolumeclaims/home", "/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes/its"
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "home", nil)
	for name, c := range map[string]struct {
		there objects
		want  string
	}{
		"a claim":                 {objects{claim: metav1.ObjectMeta{}}, "kept" + kept},
		"it is gone":              {objects{}, "deleted"},
		"it is going":             {objects{claim: metav1.ObjectMeta{DeletionTimestamp: &now}}, "deleted"},
		"the VM deletes it":       {objects{claim: local, web: says("Delete")}, deleted},
		"the template deletes it": {objects{claim: local, web: templated}, deleted},
		"the class deletes it": {
			objects{claim: local, web: metav1.ObjectMeta{}, class: says("Delete")}, deleted,
		},
		"the VM keeps it":         {objects{claim: local, web: says("Keep"), class: says("Delete")}, "kept" + kept},
		"the VM is being deleted": {objects{claim: local, web: doomed, class: says("Delete")}, "kept" + kept},
		"the VM is gone":          {objects{claim: local, class: says("Delete")}, "kept" + kept},
		"the class says nothing":  {objects{claim: local, web: metav1.ObjectMeta{}}, "kept" + kept},
		"the class is hidden": {
			objects{claim: local, web: metav1.ObjectMeta{}, class: forbidden},
			hidden + kept,
		},
		"the class does not answer": {
			objects{claim: local, web: metav1.ObjectMeta{}, class: errors.New("no route")},
			hidden + kept,
		},
		"the class is hidden, and has no say": {
			objects{claim: local, web: says("Keep"), class: forbidden}, "kept" + kept,
		},
		"the VM is hidden": {
			objects{claim: local, web: forbidden, class: says("Delete")}, "kept, unless annotation " +
				"virtkit.io/copied-claims of the VM, its template or the claim's class, which could not be " +
				"read, says Delete" + kept,
		},
		"the claim is hidden, whose class decides": {
			objects{claim: forbidden, web: metav1.ObjectMeta{}}, "kept, unless annotation virtkit.io/copied-claims " +
				"of the claim's class, which could not be read, says Delete" + kept,
		},
		"it is hidden": {objects{claim: forbidden}, "kept; `kubectl delete pvc home -n ns` deletes it"},
		"it is another": {
			objects{claim: ownedBy("apps/v1", "StatefulSet")}, "kept; `kubectl delete pvc home -n ns` deletes it",
		},
		"it is the VM's": {
			objects{claim: ownedBy("kubevirt.io/v1", "VirtualMachine")},
			"kept until the VM is deleted; `kubectl delete pvc home -n ns` deletes it",
		},
		"a DataVolume": {
			objects{claim: ownedBy("cdi.kubevirt.io/v1beta1", "DataVolume"), dv: metav1.ObjectMeta{}},
			"kept; `kubectl delete dv its -n ns` deletes it",
		},
		"a hidden DataVolume": {
			objects{claim: ownedBy("cdi.kubevirt.io/v1beta1", "DataVolume"), dv: forbidden},
			"kept; `kubectl delete dv its -n ns` deletes it",
		},
		"a DataVolume of the VM's": {
			objects{
				claim: ownedBy("cdi.kubevirt.io/v1beta1", "DataVolume"),
				dv:    ownedBy("kubevirt.io/v1", "VirtualMachine"),
			},
			"kept until the VM is deleted; `kubectl delete dv its -n ns` deletes it",
		},
	} {
		m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		m.Spec.VMIName = "web"
		text, err := json.Marshal([]volumemigration.Copied{{Volume: "data", From: "home", To: "home-m1"}})
		if err != nil {
			t.Fatal(err)
		}
		m.Annotations = map[string]string{volumemigration.CopiedAnnotation: string(text)}
		left := LeftBy(t.Context(), c.there, m)
		if len(left) != 1 {
			t.Errorf("%s: %+v", name, left)
			continue
		}
		if got := left[0].Becomes(" -n ns"); got != "Claim home, which volume data had, is "+c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	m := &v1.VirtualMachineInstanceMigration{}
	if left := LeftBy(t.Context(), objects{}, m); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	m.Annotations = map[string]string{
		volumemigration.CopiedAnnotation: `[{"volume":"data","from":"home","to":"home-m1"},` +
			`{"volume":"a","from":"b; c","to":"d"}]`,
	}
	failing := objects{"home": errors.New("no route")}
	left := LeftBy(t.Context(), failing, m)
	if len(left) != 1 || !strings.Contains(left[0].Becomes(""), "is kept; ") ||
		!strings.Contains(left[0].Becomes(""), "no route") {
		t.Errorf("%+v", left)
	}
}
