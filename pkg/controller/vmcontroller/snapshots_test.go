package vmcontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// A VM is looked at again for each change of a claim that decides whether a snapshot can have it, and for no other.
func TestClaimClassChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"class": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("fast") }, true},
		"bound": {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, true},
		"state": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{vmstate.Prefix: "vm"} }, true},
		"bound at once": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{claims.BindAtOnce: ""}
		}, true},
		"label": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }, false},
	} {
		before := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		before.Status.Phase = corev1.ClaimPending
		after := before.DeepCopy()
		tc.change(after)
		if got := claimClassChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
