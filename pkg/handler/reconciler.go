package handler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// settle is the time for which changes that nobody waits for are collected before they are written.
const settle = 500 * time.Millisecond

// Reconciler keeps the status of this node's VMIs and a session for each of their launchers.
//
//	reads:  VirtualMachineInstances, Pods (cached); both (live, before a VMI is given up or taken over)
//	writes: virtualmachineinstances/status, events, an annotation of virtualmachineinstancemigrations
type Reconciler struct {
	// Cached reads the node's VMIs and launcher pods, Live goes to the API server.
	Cached client.Reader
	Live   client.Client
	// Incoming reads the VMIs that are to move to this node, and those that have.
	Incoming client.Reader
	Events   record.EventRecorder
	Node     *Node
	// Enqueue asks for a pass after a delay; it must not block.
	Enqueue func(vmi types.NamespacedName, after time.Duration)
	// Sessions ends all sessions.
	Sessions context.Context
	// Lost is called when this node is thought lost, which it is not; nil for nobody. It must not block.
	Lost func()

	writes   *frame.Writes
	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
	ending   map[types.UID]*ending // by pod
	ends     sync.WaitGroup        // of ending
}

// frame returns the frame that reconciles one VMI: look (look.go), Next (next.go) and apply.
func (r *Reconciler) frame() *frame.Frame[*v1.VirtualMachineInstance, View, Decision] {
	r.writes = frame.NewWrites(caches{Client: r.Live, own: r.Cached, incoming: r.Incoming})
	return &frame.Frame[*v1.VirtualMachineInstance, View, Decision]{
		Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply, Gone: r.gone,
	}
}

// caches gets from the node's caches and does the rest live.
type caches struct {
	client.Client
	own, incoming client.Reader
}

// Get reads a VMI from the cache that has it.
func (c caches) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := c.own.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) {
		// Once the guest runs here it is ours, whatever the label by which the others are found still says.
		err = c.incoming.Get(ctx, key, into, options...)
	}
	return err
}

// gone makes a pass over a VMI that neither cache has.
func (r *Reconciler) gone(ctx context.Context, vmi types.NamespacedName) error {
	v := r.view(vmi)
	if err := r.lookElsewhere(ctx, &v); err != nil {
		return err
	}
	d := Next(v)
	return r.apply(ctx, v, &d)
}

// apply does what a decision says.
func (r *Reconciler) apply(ctx context.Context, v View, d *Decision) error {
	if d.Lost && r.Lost != nil {
		r.Lost()
	}
	found := r.followed(v.Key)
	if d.End {
		r.end(v.Key)
	}
	s := found
	switch d.Session {
	case SessionStart:
		s = r.start(v, d)
	case SessionRefresh:
		s.refresh(v.VMI)
		if v.Pod != nil {
			s.sawPod(v.Pod.Annotations)
		}
	}
	if s != nil {
		r.command(s, v, d)
	}
	if found != nil && d.Report != nil {
		r.report(ctx, found, d.Report)
	}
	if d.Status == nil {
		return nil
	}
	return r.write(ctx, v, d)
}

// command gives a session the work that a decision asks for.
func (r *Reconciler) command(s *session, v View, d *Decision) {
	if !d.StopBy.IsZero() {
		s.stop(d.StopBy)
		if d.Announce {
			r.Events.Event(v.VMI, corev1.EventTypeNormal, string(v1.ShuttingDown),
				"Signaled graceful shutdown of the guest.")
		}
	}
	if d.Outgoing != nil {
		s.setOutgoing(*d.Outgoing)
	}
	if d.TakeOver != nil {
		select {
		case s.taking <- *d.TakeOver:
		default: // asked before
		}
	}
	if d.Note != "" {
		s.log.Info(d.Note)
	}
}

// write patches the status and emits the events. The session has the view's VMI, which stays as it is.
func (r *Reconciler) write(ctx context.Context, v View, d *Decision) error {
	vmi := v.VMI.DeepCopy()
	if err := frame.PatchStatus(ctx, r.writes, vmi, &vmi.Status, *d.Status); err != nil {
		return err
	}
	r.Node.Log.Debug("status written", "vmi", v.Key.String(), "phase", vmi.Status.Phase, "version", vmi.ResourceVersion)
	for _, e := range d.Events {
		r.Events.Event(vmi, e.Type, e.Reason, e.Message)
	}
	return nil
}
