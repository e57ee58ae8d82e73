package frametest

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestServer(t *testing.T) {
	ctx := t.Context()
	refused := errors.New("refused")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	unnamed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "b-"}}
	s := New(t, nil, pod)
	s.Note = func(object client.Object) string { return object.GetLabels()["note"] }
	s.Refuse(1, refused)
	noted := pod.DeepCopy()
	noted.Labels = map[string]string{"note": "x"}
	for i, err := range []error{
		s.Create(ctx, unnamed), s.Delete(ctx, pod), s.Patch(ctx, noted, client.MergeFrom(pod)),
		s.Status().Patch(ctx, pod, client.MergeFrom(pod)), s.SubResource("eviction").Create(ctx, pod, pod),
	} {
		if (i == 1) != errors.Is(err, refused) || i != 1 && err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	want := []string{
		"create Pod b-…", "delete Pod a", "patch Pod a (x)", "patch status of Pod a", "create eviction of Pod a",
	}
	if !slices.Equal(s.Writes, want) {
		t.Errorf("writes %q", s.Writes)
	}
	var pods corev1.PodList
	if err := s.List(ctx, &pods); err != nil || len(pods.Items) != 1 || pods.Items[0].Labels != nil {
		t.Errorf("the writes were done: %v, %v", pods.Items, err)
	}
}

func TestStory(t *testing.T) {
	got := Story(t, func(refuse int) []string {
		if refuse == 0 {
			return []string{"a", "status"}
		}
		return []string{"a", "b"}
	})
	if want := "  a, and if it is refused status\n  b\n"; got != want {
		t.Errorf("%q", got)
	}
}
