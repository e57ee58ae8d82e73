package images

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/cdi"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// withSources is an API server with claims and, unless refused, DataSources.
type withSources struct {
	claims  []corev1.PersistentVolumeClaim
	sources []cdiv1.DataSource
	refused error
	// served says that there is CDI; made are the DataSources that were made.
	served bool
	made   []string
}

func (r *withSources) Read(_ context.Context, path string, _ url.Values, into any) error {
	switch into := into.(type) {
	case *corev1.PersistentVolumeClaimList:
		into.Items = r.claims
	case *corev1.PersistentVolumeClaim:
		*into = r.claims[0]
	case *metav1.APIResourceList:
		if !r.served {
			return apierrors.NewNotFound(schema.GroupResource{}, path)
		}
		into.APIResources = []metav1.APIResource{{Name: cdi.DataSources}}
	case *cdiv1.DataSource:
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	case *cdiv1.DataSourceList:
		into.Items = r.sources
		return r.refused
	}
	return nil
}

func (r *withSources) CreateObject(
	_ context.Context, group, namespace, resource string, object *unstructured.Unstructured, _ bool,
) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(object.Object["metadata"])
	r.made = append(r.made, group+" "+namespace+" "+resource+" "+string(data))
	return object, err
}

func (r *withSources) MergeObject(
	context.Context, string, string, string, string, string, []byte, bool,
) (*unstructured.Unstructured, error) {
	return nil, nil
}

func sourceOf(
	name string, created int64, labels map[string]string, of *cdiv1.DataVolumeSourcePVC, ready string,
) cdiv1.DataSource {
	d := cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(created, 0)),
		},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: of}},
	}
	if ready != "" {
		d.Status.Conditions = []cdiv1.DataSourceCondition{{
			Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{Status: "True"},
		}}
	}
	if ready != "yes" && ready != "" {
		d.Status.Conditions[0].Status, d.Status.Conditions[0].Message = corev1.ConditionFalse, ready
	}
	return d
}

// TestListSources: a DataSource of an image's claim is told with the image, and others are images themselves.
func TestListSources(t *testing.T) {
	debian := &Image{Name: "debian", Version: "13", User: "debian"}
	pvc := func(namespace, name string) *cdiv1.DataVolumeSourcePVC {
		return &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}
	}
	link := sourceOf("link", 1, nil, nil, "yes")
	link.Spec.Source.DataSource = &cdiv1.DataSourceRefSourceDataSource{Namespace: "ns", Name: "fedora"}
	link.Status.Source.PVC = pvc("ns", "fedora-1234")
	r := &withSources{
		claims: []corev1.PersistentVolumeClaim{
			claimOf("debian-13", 1, debian.Labels(), nil), claimOf("fedora-1234", 1, nil, nil),
		},
		sources: []cdiv1.DataSource{
			sourceOf("other-name", 1, nil, pvc("", "debian-13"), "yes"),
			sourceOf("debian-13", 1, nil, pvc("ns", "debian-13"), "yes"),
			sourceOf("fedora", 1, map[string]string{uploads.LabelPreference: "fedora"}, pvc("ns", "fedora-1234"),
				"yes"),
			sourceOf("debian", 9, nil, pvc("elsewhere", "debian-13"), "yes"),
			sourceOf("rhel9", 1, nil, nil, "NoSource"), sourceOf("win11", 1, nil, nil, ""),
			sourceOf("mine", 1, map[string]string{
				uploads.LabelImage: "alpine", uploads.LabelImageVersion: "3", uploads.LabelImageUser: "alpine",
			}, pvc("elsewhere", "x"), "yes"),
			sourceOf("not.an.image", 1, nil, pvc("ns", "x"), "yes"), link,
		},
	}
	list, err := List(t.Context(), r, "ns")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.Items {
		got = append(got, strings.Join([]string{
			p.Image, p.Name, p.Claim, p.DataSource, p.User, p.Preference, p.Size, p.StorageClass, p.Phase, p.Message,
		}, ","))
	}
	want := []string{
		"alpine/3,mine,,mine,alpine,,,,Ready,",
		"debian/13,debian-13,debian-13,debian-13,debian,,1Gi,fast,Ready,",
		"debian/latest,debian,,debian,,,,,Ready,",
		"fedora/latest,fedora,,fedora,,fedora,1Gi,fast,Ready,",
		"link/latest,link,,link,,,1Gi,fast,Ready,",
		"rhel9/latest,rhel9,,rhel9,,,,,NotReady,NoSource",
		"win11/latest,win11,,win11,,,,,NotReady,CDI says nothing of it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for ref, name := range map[string]string{"debian": "debian-13", "debian/latest": "debian", "fedora": "fedora"} {
		if p, err := list.Find(ref); err != nil || p.Name != name {
			t.Errorf("%s: %+v, %v", ref, p, err)
		}
	}
	coming, left := list.Items[0], list.Items[0]
	coming.Image, coming.Claim, coming.Phase = "fedora/42", "coming", PhasePulling
	left.Image, left.Claim, left.Phase = "fedora/43", "left", PhaseIncomplete
	left.CreationTimestamp = metav1.NewTime(time.Unix(99, 0))
	list.Items = append(list.Items, coming, left)
	if p, err := list.Find("fedora"); err != nil || p.Name != "fedora" {
		t.Errorf("with one that is being pulled: %+v, %v", p, err)
	}
	if p, err := list.OnClaims().Find("fedora"); err != nil || p.Claim != "coming" {
		t.Errorf("on a claim: %+v, %v", p, err)
	}
	for _, none := range []error{
		apierrors.NewNotFound(schema.GroupResource{}, ""), apierrors.NewForbidden(schema.GroupResource{}, "", nil),
	} {
		r.refused = none
		if list, err := List(t.Context(), r, ""); err != nil || len(list.Items) != 1 || list.Items[0].DataSource != "" {
			t.Errorf("%v: %+v, %v", none, list, err)
		}
	}
	r.refused = apierrors.NewInternalError(context.DeadlineExceeded)
	if _, err := List(t.Context(), r, ""); err == nil || !strings.HasPrefix(err.Error(), "list DataSources: ") {
		t.Error(err)
	}
}

// TestOffer: a DataSource has the labels that tell of the image, no others, and goes with the claim.
func TestOffer(t *testing.T) {
	debian := &Image{Name: "debian", Version: "13", User: "debian", Instancetype: "u1.small", Preference: "debian"}
	claim := claimOf("debian-13", 1, debian.Labels(), nil)
	claim.UID, claim.Labels["app"] = "u", "mine"
	r := &withSources{claims: []corev1.PersistentVolumeClaim{claim}}
	if name, err := Offer(t.Context(), r, "ns", "debian-13"); name != "" || err != nil || len(r.made) > 0 {
		t.Errorf("without CDI: %q, %v, made %q", name, err, r.made)
	}
	r.served = true
	const want = `/apis/cdi.kubevirt.io/v1beta1 ns datasources {"labels":{"image.virtkit.io/name":"debian",` +
		`"image.virtkit.io/user":"debian","image.virtkit.io/version":"13",` +
		`"instancetype.kubevirt.io/default-instancetype":"u1.small","instancetype.kubevirt.io/default-preference":` +
		`"debian"},"name":"debian-13","namespace":"ns","ownerReferences":[{"apiVersion":"v1","kind":` +
		`"PersistentVolumeClaim","name":"debian-13","uid":"u"}]}`
	name, err := Offer(t.Context(), r, "ns", "debian-13")
	if name != "debian-13" || err != nil || len(r.made) != 1 || r.made[0] != want {
		t.Errorf("%q, %v, made %q", name, err, r.made)
	}
}
