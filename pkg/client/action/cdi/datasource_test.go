package cdi

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOffer(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "u"}}
	there := func(of string, labels map[string]any, owner string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"labels": labels, "ownerReferences": []any{map[string]any{
				"kind": "PersistentVolumeClaim", "name": "disk", "uid": owner,
			}}},
			"spec": map[string]any{"source": map[string]any{"pvc": map[string]any{"namespace": "ns", "name": of}}},
		}
	}
	users := there("disk", nil, "u")
	delete(users["metadata"].(map[string]any), "ownerReferences")
	operators := there("disk", nil, "u")
	operators["metadata"].(map[string]any)["ownerReferences"] = []any{
		map[string]any{"kind": "DataImportCron", "uid": "c"},
	}
	const (
		owner   = `"ownerReferences":[{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"disk","uid":"u"}]`
		changed = sourcePath + ` {"metadata":{"labels":{"a":"b"},` + owner +
			`},"spec":{"source":{"dataSource":null,"pvc":{"name":"disk","namespace":"ns"},"snapshot":null}}}`
	)
	for name, test := range map[string]struct {
		there         map[string]any
		o             Offering
		made, changed string
		plain, taken  bool
	}{
		"none": {
			o: Offering{Owned: true},
			made: Group + `/namespaces/ns/datasources {"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataSource",` +
				`"metadata":{"labels":{"a":"b"},"name":"disk","namespace":"ns",` + owner + `},"spec":{"source":{"pvc":` +
				`{"name":"disk","namespace":"ns"}}}}`,
		},
		"as it should be": {there: there("disk", map[string]any{"a": "b", "c": "d"}, "u"), o: Offering{Owned: true}},
		"without a label": {there: there("disk", nil, "u"), o: Offering{Owned: true}, changed: changed},
		"of an older claim": {
			there: there("disk", map[string]any{"a": "b"}, "old"), o: Offering{Owned: true}, changed: changed,
		},
		"that a user made":      {there: users, o: Offering{Owned: true}},
		"that an operator made": {there: operators, o: Offering{Owned: true}},
		"of the claim, asked for by the user": {
			there: operators, o: Offering{Replace: true},
			changed: sourcePath + ` {"metadata":{"labels":{"a":"b"}},"spec":{"source":{"dataSource":null,` +
				`"pvc":{"name":"disk","namespace":"ns"},"snapshot":null}}}`,
		},
		"of another, turned, without labels": {
			there: there("other", nil, "u"), o: Offering{Replace: true}, plain: true,
			changed: sourcePath + ` {"metadata":{},"spec":{"source":{"dataSource":null,"pvc":{"name":"disk",` +
				`"namespace":"ns"},"snapshot":null}}}`,
		},
		"of another": {there: there("other", nil, "u"), o: Offering{Owned: true}, taken: true},
		"of another, turned": {
			there: there("other", nil, "u"), o: Offering{Replace: true},
			changed: sourcePath + ` {"metadata":{"labels":{"a":"b"}},"spec":{"source":{"dataSource":null,` +
				`"pvc":{"name":"disk","namespace":"ns"},"snapshot":null}}}`,
		},
	} {
		w := newWorld(t)
		w.objects[sourcePath] = test.there
		if !test.plain {
			test.o.Labels = map[string]string{"a": "b"}
		}
		wrote, err := Offer(t.Context(), w, claim, test.o)
		var taken *TakenError
		if errors.As(err, &taken) != test.taken || err != nil && !test.taken ||
			wrote != (test.made+test.changed != "") {
			t.Errorf("%s: %v, %v", name, wrote, err)
		}
		if got := slices.Concat(w.made, w.changed); len(got) > 1 || len(got) == 1 && got[0] != test.made+test.changed {
			t.Errorf("%s: wrote %q", name, got)
		}
	}
}

func TestServes(t *testing.T) {
	w := newWorld(t)
	serves := func() (bool, error) { return Serves(t.Context(), w, UploadGroup, Tokens) }
	if yes, err := serves(); yes || err != nil {
		t.Errorf("no group: %v, %v", yes, err)
	}
	w.objects[UploadGroup] = map[string]any{"resources": []any{map[string]any{"name": "others"}}}
	if yes, err := serves(); yes || err != nil {
		t.Errorf("no such resource: %v, %v", yes, err)
	}
	w.objects[UploadGroup] = map[string]any{"resources": []any{map[string]any{"name": Tokens}}}
	if yes, err := serves(); !yes || err != nil {
		t.Errorf("%v, %v", yes, err)
	}
	w.refuse["GET "+UploadGroup] = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	if yes, err := serves(); yes || err != nil {
		t.Errorf("not to be asked: %v, %v", yes, err)
	}
	w.refuse["GET "+UploadGroup] = apierrors.NewServiceUnavailable("down")
	if _, err := serves(); err == nil ||
		err.Error() != "ask whether the cluster has upload.cdi.kubevirt.io/v1beta1: down" {
		t.Error(err)
	}
}
