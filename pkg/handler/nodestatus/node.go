// Package nodestatus writes to a Node that it can run VMs: the label kubevirt.io/schedulable, and a heartbeat
// annotation that virt-controller watches. One patch a minute carries both; its answer is the node, so that the labels
// by which guests are scheduled are written only when they differ.
package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
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
	// Labels is looked at after each heartbeat; nil means none.
	Labels Labels
	// Saw is called with the node after each heartbeat, unless it is nil.
	Saw func(*corev1.Node)
	// Took is called with the time (see boottime) before each heartbeat was sent that the API server has taken, unless
	// it is nil.
	Took func(sent time.Duration)
	// Address is the annotation names.AnnotationHandlerAddress; "" means none.
	Address string
	// Settle is called with the node after each heartbeat and returns annotations to change, nil being to remove one.
	// They are written if nobody has changed the Node meanwhile, so that a write that is late can never undo one that
	// came later. Settled is called with the node that the API server answered, or with nil when it is not known
	// whether they were written.
	Settle  func(*corev1.Node) map[string]any
	Settled func(*corev1.Node)
	// Pause returns the annotation names.AnnotationHeartbeatPaused of the last heartbeat before virt-handler stops in
	// order, empty for none. Paused is called when the API server has taken it.
	Pause  func() string
	Paused func()
	// Every returns the interval of the heartbeat; Period unless set.
	Every func() time.Duration
	// Wake asks for a heartbeat now; nil never does.
	Wake <-chan struct{}
	// Tick makes the channel that paces the heartbeat; time.After unless set.
	Tick func(time.Duration) <-chan time.Time

	// taken is the version of the node that the last heartbeat was answered with.
	taken string
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
		if h.Every != nil {
			wait = h.Every()
		}
		if err := h.patch(ctx, true); err != nil && ctx.Err() == nil {
			h.Log.Warn("heartbeat failed", "err", err)
			wait = min(wait, retry)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			if err := h.farewell(last); err != nil {
				h.Log.Warn("node not taken out of scheduling", "err", err)
			}
			return nil
		case <-h.Wake:
		case <-tick(wait):
		}
	}
}

// farewell sends the last heartbeat: the node takes no more guests, and those that it has do not end when the next
// virt-handler is late.
func (h *Heartbeat) farewell(ctx context.Context) error {
	pause := ""
	if h.Pause != nil {
		pause = h.Pause()
	}
	data, err := h.beat(false, pause)
	if err != nil {
		return err
	}
	if _, err := h.write(ctx, data); err != nil {
		return err
	}
	if pause != "" && h.Paused != nil {
		h.Paused()
	}
	return nil
}

func (h *Heartbeat) patch(ctx context.Context, schedulable bool) error {
	data, err := h.beat(schedulable, "")
	if err != nil {
		return err
	}
	sent := boottime.Now()
	node, err := h.write(ctx, data)
	if err != nil {
		return err
	}
	h.taken = node.ResourceVersion
	if h.Took != nil {
		h.Took(sent)
	}
	if h.Saw != nil {
		h.Saw(node)
	}
	if node, err = h.settle(ctx, node); err != nil {
		return err
	}
	if h.Labels == nil || !schedulable {
		return nil
	}
	wanted, err := h.Labels()
	if err != nil {
		h.Log.Warn("not all labels of the node are known", "err", err)
	}
	if data, err = Relabel(node, wanted); err != nil || data == nil {
		return err
	}
	_, err = h.write(ctx, data)
	return err
}

// settle writes the changes on condition that the Node is as it was answered.
func (h *Heartbeat) settle(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if h.Settle == nil {
		return node, nil
	}
	change := h.Settle(node)
	if len(change) == 0 {
		return node, nil
	}
	data,
		err := json.Marshal(
		map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": change}},
	)
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	written, err := h.write(ctx, data)
	switch {
	case apierrors.IsConflict(err):
		// Somebody else has changed the node, or an attempt was taken without an answer. The next heartbeat shows it.
		h.Settled(nil)
		return node, nil
	case err != nil:
		h.Settled(nil)
		return nil, err
	}
	h.Settled(written)
	return written, nil
}

func (h *Heartbeat) write(ctx context.Context, data []byte) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node, err := h.Nodes.Patch(ctx, h.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch node %s: %w", h.Name, err)
	}
	return node, nil
}

func (h *Heartbeat) beat(schedulable bool, pause string) ([]byte, error) {
	more := map[string]string{names.AnnotationHost: h.Host, names.AnnotationHeartbeatTaken: h.taken}
	if h.Address != "" {
		more[names.AnnotationHandlerAddress] = h.Address
	}
	if pause != "" {
		more[names.AnnotationHeartbeatPaused] = pause
	}
	return Patch(schedulable, h.Now(), more)
}

// Patch returns the merge patch of one heartbeat. The annotation's value is the time in JSON, quotes included, as
// KubeVirt writes it. annotations are written besides.
func Patch(schedulable bool, now time.Time, annotations map[string]string) ([]byte, error) {
	stamp, err := json.Marshal(metav1.NewTime(now))
	if err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	annotations = maps.Clone(annotations)
	annotations[v1.VirtHandlerHeartbeat] = string(stamp)
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]string{v1.NodeSchedulable: fmt.Sprint(schedulable)},
		"annotations": annotations,
	}})
}

// Relabel returns the merge patch that gives a node the labels that it is to have, nil when it has them, or when its
// annotation node-labeller.kubevirt.io/skip-node says that somebody else looks after them.
func Relabel(node *corev1.Node, wanted Wanted) ([]byte, error) {
	if _, skip := node.Annotations[v1.LabellerSkipNodeAnnotation]; skip {
		return nil, nil
	}
	change := wanted.change(node.Labels)
	if len(change) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
}
