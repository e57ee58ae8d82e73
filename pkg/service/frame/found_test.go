package frame

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestFound(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "there"}}
	reader := fake.NewClientBuilder().WithObjects(pod).Build()
	for name, want := range map[string]bool{"there": true, "gone": false} {
		got, err := Found(t.Context(), reader, "ns", name, &corev1.Pod{})
		if err != nil || (got != nil) != want || want && got.Name != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// An object that the client does not know how to read is an error, and no object.
	if got, err := Found(t.Context(), fake.NewFakeClient(), "ns", "x", &unknown{}); err == nil || got != nil {
		t.Errorf("an unknown kind: %v, %v", got, err)
	}
}

// unknown is a kind that no scheme has.
type unknown struct{ corev1.Pod }
