// Package node tells the cluster that a node can run virtual machines: the label
// kubevirt.io/schedulable, and a heartbeat annotation that virt-controller watches. One patch a minute
// carries both.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Period is the time between heartbeats.
const Period = time.Minute

const (
	// retry is the time after which a heartbeat that failed is tried again.
	retry = 5 * time.Second
	// patience bounds a patch, farewell the last one when virt-handler ends.
	patience = 10 * time.Second
	farewell = 3 * time.Second
)

// Heartbeat keeps a node's label and annotation.
type Heartbeat struct {
	Nodes corev1client.NodeInterface
	Name  string
	Log   *slog.Logger
	Now   func() time.Time
	// Host is the annotation names.AnnotationHost.
	Host string
	// Labels is looked at before each heartbeat; nil is none.
	Labels Labels
	// Wake asks for a heartbeat now; nil never does.
	Wake <-chan struct{}
	// Tick makes the channel that paces the heartbeat; time.After unless set.
	Tick func(time.Duration) <-chan time.Time
}

// Run beats until the context ends, then takes the node out of scheduling: without virt-handler no
// guest can start on it. Running guests are not touched.
func (h *Heartbeat) Run(ctx context.Context) error {
	tick := h.Tick
	if tick == nil {
		tick = time.After
	}
	for {
		wait := Period
		if err := h.patch(ctx, true); err != nil && ctx.Err() == nil {
			h.Log.Warn("heartbeat failed", "error", err)
			wait = retry
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			if err := h.patch(last, false); err != nil {
				h.Log.Warn("node not taken out of scheduling", "error", err)
			}
			return nil
		case <-h.Wake:
		case <-tick(wait):
		}
	}
}

func (h *Heartbeat) patch(ctx context.Context, schedulable bool) error {
	var labels map[string]*string
	if h.Labels != nil {
		var err error
		if labels, err = h.Labels(); err != nil {
			h.Log.Warn("not all labels of the node are known", "error", err)
		}
	}
	data, err := Patch(schedulable, h.Now(), h.Host, labels)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := h.Nodes.Patch(ctx, h.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", h.Name, err)
	}
	return nil
}

// Patch is the merge patch of one heartbeat. The annotation's value is the time in JSON, quotes
// included, which is how KubeVirt writes it. host is what is known of the machine; a label without a value
// is taken away.
func Patch(schedulable bool, now time.Time, host string, labels map[string]*string) ([]byte, error) {
	stamp, err := json.Marshal(metav1.NewTime(now))
	if err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	all := map[string]*string{v1.NodeSchedulable: new(fmt.Sprint(schedulable))}
	maps.Copy(all, labels)
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      all,
		"annotations": map[string]string{v1.VirtHandlerHeartbeat: string(stamp), names.AnnotationHost: host},
	}})
}
