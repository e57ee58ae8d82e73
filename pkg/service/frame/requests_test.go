package frame

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequests(t *testing.T) {
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "two"}, Spec: corev1.PodSpec{NodeName: "node1"}},
	}
	bound := func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }
	for name, c := range map[string]struct {
		items []corev1.Pod
		match func(*corev1.Pod) bool
		want  []string
	}{
		"all":              {pods, nil, []string{"a/one", "b/two"}},
		"those that match": {pods, bound, []string{"b/two"}},
		"none matches":     {pods[:1], bound, nil},
		"none there":       {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, request := range Requests(c.items, c.match) {
				got = append(got, request.String())
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("requests for %q, want %q", got, c.want)
			}
		})
	}
}

func TestRequestOf(t *testing.T) {
	if got := RequestOf("ns", nil); got != nil {
		t.Errorf("of no owner %v", got)
	}
	got := RequestOf("ns", &metav1.OwnerReference{Name: "demo"})
	if len(got) != 1 || got[0].String() != "ns/demo" {
		t.Errorf("of demo %v", got)
	}
}
