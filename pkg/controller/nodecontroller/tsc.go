package nodecontroller

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// frequencies returns the changes of a node's labels for the frequencies that guests' time stamp counters can have
// there: the node's own, and those of running guests that it can provide. A label to remove is false.
func frequencies(labels map[string]string, used []int64) map[string]bool {
	change := map[string]bool{}
	for key := range labels {
		if strings.HasPrefix(key, names.LabelTSCScheduling) {
			change[key] = false
		}
	}
	tsc := vmicontroller.TSCOf(labels)
	if tsc.Frequency > 0 {
		for _, frequency := range append([]int64{tsc.Frequency}, used...) {
			if tsc.Shows(frequency) {
				change[names.LabelTSCScheduling+strconv.FormatInt(frequency, 10)] = true
			}
		}
	}
	for key, wanted := range change {
		if wanted && labels[key] == "true" {
			delete(change, key)
		}
	}
	return change
}

// offer writes these labels.
func (r *Reconciler) offer(ctx context.Context, node *corev1.Node, change map[string]bool) error {
	before := node.DeepCopy()
	for key, wanted := range change {
		if wanted {
			node.Labels[key] = "true"
		} else {
			delete(node.Labels, key)
		}
	}
	// Nobody else writes them, so that what others write meanwhile does not matter.
	if err := r.writes.PatchAs(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	return nil
}

// given lets a VMI through when it was given a frequency, or has gone with it.
var given = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, // nodes come as well
	UpdateFunc: func(e event.UpdateEvent) bool {
		return vmicontroller.GivenTSC(e.ObjectOld.(*v1.VirtualMachineInstance)) !=
			vmicontroller.GivenTSC(e.ObjectNew.(*v1.VirtualMachineInstance))
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false }, // with the next heartbeat
}

// all returns the nodes that report their time stamp counters.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return nil // each node has a heartbeat
	}
	return frame.Requests(nodes.Items, func(node *corev1.Node) bool {
		return vmicontroller.TSCOf(node.Labels).Frequency > 0
	})
}
