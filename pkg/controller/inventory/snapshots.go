package inventory

import (
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/metrics"
)

// writeSnapshots writes when snapshots of machines were made.
func (c *Cluster) writeSnapshots(w *metrics.Writer) {
	w.Family(metrics.SnapshotSucceeded)
	for _, s := range c.Snapshots {
		if s.Status != nil && s.Status.Phase == v1beta1.Succeeded && s.Status.CreationTime != nil {
			w.Series(float64(s.Status.CreationTime.Unix()), "", s.Spec.Source.Name, s.Name, s.Namespace)
		}
	}
}
