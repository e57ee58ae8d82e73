package inventory

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// writeSnapshots writes when snapshots of VMs were made, their restores, and what exists of those.
func (c *Cluster) writeSnapshots(w *metrics.Writer) {
	w.Family(metrics.SnapshotSucceeded)
	for _, s := range c.Snapshots {
		if s.Status != nil && s.Status.Phase == v1beta1.Succeeded && s.Status.CreationTime != nil {
			w.Series(float64(s.Status.CreationTime.Unix()), "", s.Spec.Source.Name, s.Name, s.Namespace)
		}
	}
	w.Family(metrics.RestoreInfo)
	for _, r := range c.Restores {
		w.Series(1, "", r.Namespace, r.Name, string(r.UID), r.Spec.Target.Name, r.Spec.VirtualMachineSnapshotName,
			strconv.FormatBool(snapshots.RestoreComplete(r)), strconv.FormatBool(snapshots.RestoreFailed(r)))
	}
	c.writeRestored(w)
}

// source is the VM of the snapshot that a claim was restored from.
type source struct{ namespace, name string }

// writeRestored writes the claims that restores have made, by the labels that they have for KubeVirt's rules.
func (c *Cluster) writeRestored(w *metrics.Writer) {
	type total struct{ claims, bytes float64 }
	totals := map[source]*total{}
	var sources []source
	w.Family(metrics.RestoredClaims)
	for _, claim := range c.Claims {
		of := source{claim.Labels[restorecontroller.NamespaceLabel], claim.Labels[restorecontroller.SourceLabel]}
		if of.namespace == "" || of.name == "" {
			continue
		}
		w.Series(1, "", claim.Namespace, claim.Name, of.name, of.namespace)
		if totals[of] == nil {
			totals[of] = &total{}
			sources = append(sources, of)
		}
		totals[of].claims++
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		totals[of].bytes += size.AsApproximateFloat64()
	}
	slices.SortFunc(sources, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	w.Family(metrics.RestoredDisks)
	for _, of := range sources {
		w.Series(totals[of].claims, "", of.name, of.namespace)
	}
	w.Family(metrics.RestoredBytes)
	for _, of := range sources {
		w.Series(totals[of].bytes, "", of.name, of.namespace)
	}
}
