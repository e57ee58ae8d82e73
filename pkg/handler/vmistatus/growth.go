package vmistatus

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

// Growth is the launcher's answer about the sizes of the guest's disks.
type Growth struct {
	// Key is expansion.Key of the VMI that was asked about; empty when none was yet.
	Key string
	// Sizes are those of the guest's disks, bytes, by volume.
	Sizes map[string]int64
	// Failure says which disks do not have the size of their claim, and why; Old that the launcher cannot grow any.
	Failure string
	Old     bool
}

// sizes notes the sizes that the guest's disks have.
func sizes(growth Growth, list []v1.VolumeStatus) {
	for i := range list {
		if size := growth.Sizes[list[i].Name]; size > 0 {
			list[i].Size = size
		}
	}
}

// expanding ends the condition that claims are expanded when the guest's disks have their sizes, or says why they have
// not. While the storage works on it, it is virt-controller's.
func expanding(in Input, c *conditionList) {
	now := conditions.Find(c.list, expansion.Condition)
	switch {
	case now != nil && now.Reason != expansion.ReasonGuest:
	case in.Growth.Key == "" || in.Growth.Key != expansion.Key(in.VMI):
	case in.Growth.Failure != "" && (now != nil || !in.Growth.Old):
		c.set(expansion.Condition, corev1.ConditionTrue, expansion.ReasonGuest, clean(in.Growth.Failure))
	default:
		c.remove(expansion.Condition)
	}
}
