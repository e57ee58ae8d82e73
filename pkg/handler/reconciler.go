package handler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// settle is how long changes that nobody waits for are collected before they are written.
	settle = 500 * time.Millisecond
	// lostLimit is how long a launcher whose process has ended may stay without a final word from its
	// pod before its VMI counts as failed.
	lostLimit = 20 * time.Second
	// defaultGrace applies where admission has set no terminationGracePeriodSeconds.
	defaultGrace = 30 * time.Second
)

// Reconciler keeps the status of this node's VMIs and a session for each of their launchers.
//
//	reads:  VirtualMachineInstances, Pods (cached); Pods (live, before a VMI is given up)
//	writes: virtualmachineinstances/status, events, an annotation of virtualmachineinstancemigrations
type Reconciler struct {
	// Cached reads the node's VMIs and launcher pods, Live goes to the API server.
	Cached client.Reader
	Live   client.Client
	// Coming reads the VMIs that are to come to this node, and those that came.
	Coming client.Reader
	Events record.EventRecorder
	Node   *Node
	// Enqueue asks for a pass after a delay; it must not block.
	Enqueue func(vmi types.NamespacedName, after time.Duration)
	// Sessions ends all sessions.
	Sessions context.Context
	// Lost is called when this node is thought lost, which it is not; nil for nobody. It must not block.
	Lost func()

	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
	// patched is the resourceVersion of a VMI that was patched last: while the cache still has it, the
	// cache is old.
	patched map[types.NamespacedName]string
}

// Reconcile makes one pass over one VMI.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	vmi := &v1.VirtualMachineInstance{}
	err := r.Cached.Get(ctx, key, vmi)
	if apierrors.IsNotFound(err) {
		// Once the guest runs here it is ours, whatever the label by which the others are found still says.
		err = r.Coming.Get(ctx, key, vmi)
	}
	if err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("get VirtualMachineInstance: %w", err)
		}
		return r.left(ctx, key)
	}
	if vmi.Status.NodeName != r.Node.Name {
		if vmi.Labels[v1.MigrationTargetNodeNameLabel] == r.Node.Name {
			return r.arrive(ctx, vmi)
		}
		return r.left(ctx, key)
	}
	pod, err := r.pod(ctx, r.Cached, vmi)
	if err != nil {
		return reconcile.Result{}, err
	}
	if vmi.IsFinal() {
		if pod == nil || ended(pod) {
			r.drop(key)
		}
		return reconcile.Result{}, nil
	}
	switch vmi.Status.Phase {
	case v1.Unknown:
		if r.Lost != nil {
			r.Lost()
		}
	case v1.Scheduled, v1.Running:
	default:
		return reconcile.Result{}, nil // not handed over yet
	}
	if pod == nil {
		// Nobody is given up because of a cache that lags behind.
		if pod, err = r.pod(ctx, r.Live, vmi); err != nil {
			return reconcile.Result{}, err
		}
	}
	var stopBy time.Time
	if vmi.DeletionTimestamp != nil {
		stopBy = deadline(vmi, r.Node.Now())
	}
	s, news := r.session(vmi, pod, stopBy)
	if s != nil && !stopBy.IsZero() {
		news = s.stop(stopBy) || news
		if news && vmi.Status.Phase == v1.Running {
			r.Events.Event(vmi, corev1.EventTypeNormal, string(v1.ShuttingDown), "Signaled graceful shutdown of the guest.")
		}
	}
	if s != nil {
		s.depart(departureOf(vmi, r.Node.Name))
		r.tellProgress(ctx, s)
	}
	in, result := r.input(vmi, pod, s)
	if moved(in.Guest) || in.Guest == nil && pod != nil && status.Moved(pod) {
		return r.awaitHandover(ctx, vmi, in)
	}
	return result, r.write(ctx, vmi, status.Next(in))
}

// input gathers what a status is made of, and says when to look again.
func (r *Reconciler) input(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, s *session) (status.Input, reconcile.Result) {
	in := status.Input{VMI: vmi, Pod: pod, Now: r.Node.Now()}
	var seen observation
	if s != nil {
		seen = s.observation()
		in.Guest, in.Plan, in.Failure, in.NeverStarted = seen.Guest, seen.Plan, seen.Failure, seen.NeverStarted
		in.Departure = seen.departureSeen()
		in.Volumes, in.Unsized, in.Unlinked = seen.Volumes, seen.Unsized, seen.Unlinked
	}
	lost := s == nil || !seen.LostAt.IsZero() || seen.Guest == nil
	switch {
	case pod == nil && lost:
		in.Gone = "The launcher's pod was deleted."
	case pod == nil:
		return in, reconcile.Result{RequeueAfter: time.Second} // the launcher still speaks
	case s != nil && !seen.LostAt.IsZero() && seen.Dead:
		left := lostLimit - in.Now.Sub(seen.LostAt)
		if left > 0 {
			return in, reconcile.Result{RequeueAfter: left}
		}
		in.Gone = "The launcher's process has ended without a final word."
	}
	return in, reconcile.Result{}
}

// write patches the status if it differs and emits the events of the difference.
func (r *Reconciler) write(ctx context.Context, vmi *v1.VirtualMachineInstance, next v1.VirtualMachineInstanceStatus) error {
	if equality.Semantic.DeepEqual(vmi.Status, next) {
		return nil
	}
	key := client.ObjectKeyFromObject(vmi)
	r.mu.Lock()
	stale := r.patched[key] == vmi.ResourceVersion
	r.mu.Unlock()
	if stale {
		return nil // the cache's next version makes another pass
	}
	old := vmi.DeepCopy()
	changed := vmi.DeepCopy()
	changed.Status = next
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := r.Live.Status().Patch(ctx, changed, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			// The cache was old: its next version makes another pass, and a delay makes sure of it.
			r.Enqueue(key, settle)
			return nil
		}
		return fmt.Errorf("write status: %w", err)
	}
	if changed.ResourceVersion != old.ResourceVersion {
		r.mu.Lock()
		if r.patched == nil {
			r.patched = map[types.NamespacedName]string{}
		}
		r.patched[key] = old.ResourceVersion
		r.mu.Unlock()
	}
	r.Node.Log.Debug("status written", "vmi", key.String(), "phase", next.Phase, "version", changed.ResourceVersion)
	for _, e := range status.Events(old.Status, next) {
		r.Events.Event(changed, e.Type, e.Reason, e.Message)
	}
	if changed.DeletionTimestamp != nil && changed.IsFinal() {
		r.Events.Event(changed, corev1.EventTypeNormal, string(v1.Deleted), "The guest of the deleted VirtualMachineInstance is gone.")
	}
	return nil
}

// pod finds the VMI's launcher pod on this node, nil when there is none. Only a pod that the controller
// has named in the status counts.
func (r *Reconciler) pod(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance) (*corev1.Pod, error) {
	var list corev1.PodList
	err := from.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingLabels{
		names.LabelComponent: names.VirtLauncher, v1.CreatedByLabel: string(vmi.UID),
	})
	if err != nil {
		return nil, fmt.Errorf("list launcher pods: %w", err)
	}
	var found *corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != r.Node.Name {
			continue
		}
		// Labels are anybody's to set who may make a pod; the status is the controller's.
		if _, named := vmi.Status.ActivePods[pod.UID]; !named {
			continue
		}
		if found == nil || better(pod, found) {
			found = pod
		}
	}
	return found, nil
}

// better: a pod that has not ended, then the younger.
func better(a, b *corev1.Pod) bool {
	if ended(a) != ended(b) {
		return ended(b)
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// deadline is when the guest of a deleted VMI is powered off: a grace period after the deletion, by
// the API server's clock, which is cut to the second, but not later than one from now, by the node's.
func deadline(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	by, latest := vmi.DeletionTimestamp.Add(grace(vmi)+time.Second), now.Add(grace(vmi))
	if by.After(latest) {
		return latest
	}
	return by
}

func grace(vmi *v1.VirtualMachineInstance) time.Duration {
	if s := vmi.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultGrace
}

// session returns the session of the VMI's launcher, started now if there is a launcher to follow
// and none follows it, which it reports. Without a pod it is the session that was, if any.
func (r *Reconciler) session(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, stopBy time.Time) (_ *session, started bool) {
	key := client.ObjectKeyFromObject(vmi)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[key]
	if s != nil && (s.target.UID != vmi.UID || pod != nil && s.target.Pod != pod.UID) {
		r.forget(s)
		delete(r.sessions, key)
		s = nil
	}
	if s != nil {
		s.refresh(vmi)
		if pod != nil {
			s.sawPod(pod.Annotations)
		}
		return s, false
	}
	if pod == nil || ended(pod) || r.Sessions.Err() != nil {
		return nil, false
	}
	t := target{VMI: key, UID: vmi.UID, Pod: pod.UID, Annotations: pod.Annotations}
	for _, c := range pod.Spec.Containers {
		if c.Name == names.ContainerCompute {
			t.Image = c.Image
			_, t.KVM = c.Resources.Limits[names.ResourceKVM]
		}
	}
	s = startSession(r.Sessions, r.Node, t, vmi, stopBy, func(urgent bool) {
		if urgent {
			r.Enqueue(key, 0)
		} else {
			r.Enqueue(key, settle)
		}
	})
	if r.sessions == nil {
		r.sessions = map[types.NamespacedName]*session{}
	}
	r.sessions[key] = s
	return s, true
}

// Launcher is the connected launcher of a VMI on this node.
func (r *Reconciler) Launcher(vmi types.NamespacedName) (launcherpb.LauncherClient, types.UID, error) {
	r.mu.Lock()
	s := r.sessions[vmi]
	r.mu.Unlock()
	if s == nil {
		return nil, "", fmt.Errorf("VirtualMachineInstance %s does not run on node %s", vmi, r.Node.Name)
	}
	l, err := s.launcher()
	return l, s.target.Pod, err
}

// drop ends the session of a VMI that is gone, with all that was kept for it.
func (r *Reconciler) drop(key types.NamespacedName) {
	r.mu.Lock()
	s := r.sessions[key]
	delete(r.sessions, key)
	delete(r.patched, key)
	r.mu.Unlock()
	if s != nil {
		r.forget(s)
	}
}

// forget ends a session and removes what was kept for its pod.
func (r *Reconciler) forget(s *session) {
	s.end()
	if err := r.Node.plans.remove(s.target.Pod); err != nil {
		r.Node.Log.Warn("network plan not removed", "pod", s.target.Pod, "error", err)
	}
	if err := r.Node.Rights.Forget(s.target.Pod); err != nil {
		r.Node.Log.Warn("record of devices not removed", "pod", s.target.Pod, "error", err)
	}
}

// Close waits for all sessions, whose context has ended.
func (r *Reconciler) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		s.end()
	}
}
