package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

type reader []corev1.PersistentVolumeClaim

func (r reader) Read(_ context.Context, _ string, _ url.Values, into any) error {
	if list, ok := into.(*corev1.PersistentVolumeClaimList); ok {
		list.Items = r
	}
	return nil
}

func claimOf(name string, created int64, labels, annotations map[string]string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: labels, Annotations: annotations,
			CreationTimestamp: metav1.NewTime(time.Unix(created, 0)),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
}

func TestList(t *testing.T) {
	debian := &Image{Name: "debian", Version: "13", User: "debian", Instancetype: "u1.small", Preference: "debian"}
	request, err := json.Marshal(uploads.Request{ID: "0123456789abcdef", Size: 5, Labels: debian.Labels()})
	if err != nil {
		t.Fatal(err)
	}
	list, err := List(t.Context(), reader{
		claimOf("new", 3, debian.Labels(), nil),
		claimOf("old", 2, debian.Labels(), nil),
		claimOf("coming", 1, nil, map[string]string{uploads.AnnotationRequest: string(request)}),
		claimOf("left", 9, nil, map[string]string{uploads.AnnotationImage: "debian/13"}),
		claimOf("odd", 9, nil, map[string]string{uploads.AnnotationImage: "a/b/c"}),
		claimOf("data", 1, map[string]string{"app": "web"}, nil),
	}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.Items {
		got = append(got, p.Name+" "+p.Image+" "+p.User+" "+p.Instancetype+" "+p.Preference+" "+p.Size+" "+
			p.StorageClass+" "+p.Phase)
	}
	want := []string{
		"coming debian/13 debian u1.small debian 1Gi fast Pulling",
		"left debian/13    1Gi fast Incomplete",
		"new debian/13 debian u1.small debian 1Gi fast Ready",
		"old debian/13 debian u1.small debian 1Gi fast Ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, ref := range []string{"debian", "debian/13"} {
		if p, err := list.Find(ref); err != nil || p.Name != "new" {
			t.Errorf("%s: %v, %v; the one made last is meant", ref, p, err)
		}
	}
	// A version of this name may be another catalogue's: an alias is asked for by name.
	if p, err := list.Find("debian/trixie"); err == nil {
		t.Errorf("debian/trixie is %s", p.Name)
	}
	if p, err := list.FindAlias("debian/trixie"); err != nil || p.Name != "new" {
		t.Errorf("the alias debian/trixie: %v, %v", p, err)
	}
	if _, err := list.FindAlias("debian/bookworm"); err == nil || err.Error() != "image debian/bookworm not found" {
		t.Error(err)
	}
	if _, err := list.Find("debian/12"); err == nil || err.Error() != "image debian/12 not found" {
		t.Error(err)
	}
}

func TestClone(t *testing.T) {
	debian := &Image{Name: "debian", Version: "13", User: "debian", Instancetype: "u1.small", Preference: "debian"}
	source := claimOf("debian-13", 1, debian.Labels(), map[string]string{"pv.kubernetes.io/bind-completed": "yes"})
	source.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	got, err := Clone(&source, "demo-disk", "")
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "demo-disk", Labels: map[string]string{
			uploads.LabelInstancetype: "u1.small", uploads.LabelPreference: "debian",
		}},
		Spec: source.Spec,
	}
	want.Spec.Resources.Requests = source.Status.Capacity
	want.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "debian-13"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := Clone(&source, "x", "3Gi"); err != nil || got.Spec.Resources.Requests.Storage().String() != "3Gi" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Clone(&source, "x", "1Gi"); err == nil ||
		err.Error() != "the image has 2Gi, and its copy cannot have less; ask for 2Gi or more" {
		t.Error(err)
	}
}

// Uploads of disks that are no images are listed, too, while they are under way and after they did not end well: nobody
// is to look for what they have left. A claim whose upload was refused before it wrote anything is as it was.
func TestListOfUploads(t *testing.T) {
	const id, other = "0123456789abcdef", "fedcba9876543210"
	note := func(key string, what any) map[string]string { return map[string]string{key: uploads.Encode(what)} }
	both := note(uploads.AnnotationRequest, uploads.Request{ID: id, Size: 100})
	before := uploads.State{ID: other, Phase: uploads.Failed, Received: 7, Size: 9}
	both[uploads.AnnotationState] = uploads.Encode(before)
	failed := uploads.State{ID: id, Phase: uploads.Failed, Message: "cut", Received: 30, Size: 100}
	intact := failed
	intact.Intact, intact.Received = true, 0
	made := note(uploads.AnnotationState, intact)
	made[uploads.AnnotationMade] = uploads.MadeFor
	debian := (&Image{Name: "debian", Version: "13"}).Labels()
	cancelled := uploads.State{Phase: uploads.Cancelled, Size: 5}
	done := uploads.State{ID: id, Phase: uploads.Succeeded, Received: 100, Size: 100}
	list, err := List(t.Context(), reader{
		claimOf("a-sending", 1, nil, note(uploads.AnnotationRequest, uploads.Request{ID: id, Size: 100})),
		claimOf("b-again", 1, nil, both),
		claimOf("c-cut", 1, nil, note(uploads.AnnotationState, failed)),
		claimOf("d-cancelled", 1, nil, note(uploads.AnnotationState, cancelled)),
		claimOf("e-made", 1, nil, map[string]string{uploads.AnnotationMade: uploads.MadeFor}),
		claimOf("f-refused", 1, nil, made),
		claimOf("g-old-disk", 1, nil, note(uploads.AnnotationState, intact)),
		claimOf("h-done", 1, nil, note(uploads.AnnotationState, done)),
		claimOf("i-image", 1, debian, note(uploads.AnnotationState, failed)),
		claimOf("j-data", 1, nil, nil),
	}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	list.Follow(t.Context(), follower{"a-sending": {Phase: uploads.Receiving, Received: 42, Size: 100}})
	var got []string
	for _, p := range list.Items {
		got = append(got, fmt.Sprintf("%s %q %s %d/%d %s", p.Claim, p.Image, p.Phase, p.Received, p.Bytes, p.Message))
	}
	want := []string{
		`a-sending "" Uploading 42/100 `, `b-again "" Uploading 0/100 `, `c-cut "" Incomplete 30/100 cut`,
		`d-cancelled "" Incomplete 0/5 `, `e-made "" Incomplete 0/0 `, `f-refused "" Incomplete 0/100 cut`,
		`i-image "debian/13" Incomplete 30/100 cut`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if images := list.Images(); len(images) != 1 || images[0].Claim != "i-image" {
		t.Errorf("images: %v", images)
	}
	if _, err := Get(t.Context(), reader{}, "ns", "c-cut"); err == nil {
		t.Error("an upload is taken for an image")
	}
}

// follower has the states of uploads by claim.
type follower map[string]uploads.State

func (f follower) UploadState(_ context.Context, _, claim string) (uploads.State, error) {
	if state, ok := f[claim]; ok {
		return state, nil
	}
	return uploads.State{}, errors.New("it does not answer")
}

// hanging answers for one claim, and for the others when it is no longer waited for.
type hanging struct{}

func (hanging) UploadState(ctx context.Context, _, claim string) (uploads.State, error) {
	if claim == "z" {
		return uploads.State{Phase: uploads.Receiving, Received: 42, Size: 100}, nil
	}
	<-ctx.Done()
	return uploads.State{}, ctx.Err()
}

// Nodes that do not answer are waited for together, and not for long.
func TestFollowHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &PulledList{}
		for _, name := range []string{"a", "b", "c", "z"} {
			list.Items = append(list.Items, Pulled{ObjectMeta: metav1.ObjectMeta{Name: name}, Phase: PhasePulling})
		}
		began := time.Now()
		list.Follow(t.Context(), hanging{})
		if took := time.Since(began); took > followedFor {
			t.Errorf("it took %s", took)
		}
		if a, z := list.Items[0], list.Items[3]; a.Received != 0 || a.Phase != PhasePulling || z.Received != 42 {
			t.Errorf("%+v, %+v", a, z)
		}
	})
}

// A row is made of a claim with an image, also of one that is being pulled, and of a copy.
func TestRow(t *testing.T) {
	debian := &Image{Name: "debian", Version: "13", User: "debian", Instancetype: "u1.small", Preference: "debian"}
	image := claimOf("debian-13", 1, debian.Labels(), nil)
	left := claimOf("left", 1, nil, map[string]string{uploads.AnnotationImage: "debian/13"})
	copied := claimOf("web-disk", 1, nil, nil)
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "debian-13"}
	restored := claimOf("restored", 1, nil, nil)
	restored.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "s"}
	data := claimOf("data", 1, nil, nil)
	cut := claimOf("cut", 1, nil, map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{
		Phase: uploads.Failed, Received: 1, Size: 2, Message: "cut",
	})})
	if r := Row(&cut); r == nil || r.Phase != PhaseIncomplete || r.Received != 1 || r.Bytes != 2 || r.Message != "cut" {
		t.Errorf("an upload: %+v", r)
	}
	for claim, want := range map[*corev1.PersistentVolumeClaim]string{
		&image:  "ns/debian-13 debian/13 debian u1.small debian 1Gi fast Ready",
		&left:   "ns/left debian/13    1Gi fast Incomplete",
		&copied: "ns/web-disk        of debian-13", &restored: "none", &data: "none",
	} {
		got := "none"
		if r := Row(claim); r != nil {
			got = r.Key().String()
			for _, word := range []string{r.Ref, r.User, r.Instancetype, r.Preference, r.Size, r.Class, r.Phase} {
				got += " " + word
			}
			if r.Of != "" {
				got += " of " + r.Of
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", claim.Name, got, want)
		}
	}
}
