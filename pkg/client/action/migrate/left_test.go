package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// objects answers reads by the end of their path: with metadata, or an error.
type objects map[string]any

func (o objects) ReadMetadata(_ context.Context, path string) (*metav1.PartialObjectMetadata, error) {
	for end, answer := range o {
		if !strings.HasSuffix(path, end) {
			continue
		}
		if err, is := answer.(error); is {
			return nil, err
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: answer.(metav1.ObjectMeta)}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
}

// What becomes of the claims that a guest has left behind.
func TestLeftBy(t *testing.T) {
	ownedBy := func(version, kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
			APIVersion: version, Kind: kind, Name: "its",
		}}}
	}
	now := metav1.Now()
	claim, dv := "/ns/persistentvolumeclaims/home", "/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes/its"
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "home", nil)
	for name, c := range map[string]struct {
		there objects
		want  string
	}{
		"a claim":     {objects{claim: metav1.ObjectMeta{}}, "kept; `kubectl delete pvc home -n ns` deletes it"},
		"it is gone":  {objects{}, "deleted"},
		"it is going": {objects{claim: metav1.ObjectMeta{DeletionTimestamp: &now}}, "deleted"},
		"it is to go": {objects{claim: metav1.ObjectMeta{}, "/virtualmachines/web": metav1.ObjectMeta{
			Annotations: map[string]string{volumemigration.CopiedClaimsAnnotation: "Delete"},
		}}, "deleted by virt-controller if nobody else has it, as annotation virtkit.io/copied-claims of the VM says"},
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
