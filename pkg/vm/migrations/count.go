package migrations

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Counts are a cluster's migrations as one VMI sees them.
type Counts struct {
	// Own are the VMI's, of all times.
	Own []*v1.VirtualMachineInstanceMigration
	// Running are others that have a pod or are about to: one more may begin while they are below the limits.
	// Unfinished are these and those that wait: one more is made for a node's drain while they are below the limits, so
	// that what people ask for does not queue behind a whole node.
	Running, Unfinished Number
}

// Number counts the migrations in the cluster, and those of them that leave the VMI's node.
type Number struct{ Cluster, Away int }

// Count counts all migrations for vmi. nodes are the nodes of the VMIs that migrate; one without an entry is on none.
func Count(
	all []v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance, nodes map[types.NamespacedName]string,
) Counts {
	var c Counts
	for i := range all {
		m := &all[i]
		switch {
		case m.Namespace == vmi.Namespace && m.Spec.VMIName == vmi.Name:
			c.Own = append(c.Own, m)
			continue
		case m.IsFinal():
			continue
		}
		node, ok := nodes[Instance(m)]
		away := ok && node == vmi.Status.NodeName
		c.Unfinished.add(away)
		if m.IsRunning() {
			c.Running.add(away)
		}
	}
	return c
}

func (n *Number) add(away bool) {
	n.Cluster++
	if away {
		n.Away++
	}
}

// Instance returns the key of the VMI that a migration moves.
func Instance(m *v1.VirtualMachineInstanceMigration) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
}

// ByAge compares two migrations: the older one is less, and of two that were made in one second that of the lesser
// name.
func ByAge(a, b *v1.VirtualMachineInstanceMigration) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}
