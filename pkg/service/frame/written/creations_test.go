package written

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCreations(t *testing.T) {
	var c Creations
	if purposes, pending := c.Of("vmi"); len(purposes) != 0 || pending {
		t.Errorf("before any: %v, pending %t", purposes, pending)
	}
	end := c.Begin("vmi", "migration")
	failed := c.Begin("vmi", "")
	if purposes, pending := c.Of("vmi"); len(purposes) != 0 || !pending {
		t.Errorf("while two are created: %v, pending %t", purposes, pending)
	}
	end(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}})
	c.Forget("vmi")
	if purposes, pending := c.Of("vmi"); purposes["pod"] != "migration" || !pending {
		t.Errorf("while one is created: %v, pending %t", purposes, pending)
	}
	failed(nil)
	if purposes, pending := c.Of("vmi"); len(purposes) != 1 || pending {
		t.Errorf("after both: %v, pending %t", purposes, pending)
	}
	if purposes, _ := c.Of("other"); len(purposes) != 0 {
		t.Errorf("of another owner: %v", purposes)
	}
	c.Forget("vmi")
	if purposes, _ := c.Of("vmi"); len(purposes) != 0 {
		t.Errorf("once forgotten: %v", purposes)
	}
}
