package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestEncryptedMemory: a guest whose memory the node's processor encrypts stays there.
func TestEncryptedMemory(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.LaunchSecurity = &v1.LaunchSecurity{SEV: &v1.SEV{}}
	c := &conditionList{now: now}
	migratable(vmi, nil, nil, false, c)
	if len(c.list) != 2 {
		t.Fatalf("conditions %+v", c.list)
	}
	for _, got := range c.list {
		if got.Status != corev1.ConditionFalse || got.Reason != "SEVNotLiveMigratable" {
			t.Errorf("%+v", got)
		}
	}
}
