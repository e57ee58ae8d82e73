package handler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// ending is a session that was ended and may not have returned yet.
type ending struct {
	// wanted says that the pod is to have another session.
	wanted bool
}

// followed returns the session of a VMI's launcher; nil when there is none.
func (r *Reconciler) followed(vmi types.NamespacedName) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[vmi]
}

// start follows the launcher in the view's pod. It returns nil when virt-handler ends, or when the pod's last session
// has not returned, whose end makes another pass.
func (r *Reconciler) start(v View, d *Decision) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Sessions.Err() != nil {
		return nil
	}
	if before := r.ending[v.Pod.UID]; before != nil {
		before.wanted = true
		return nil
	}
	key := v.Key // the session keeps that, not the view
	s := startSession(r.Sessions, r.Node, targetOf(v.VMI, v.Pod), v.VMI, d.StopBy, func(urgent bool) {
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
	return s
}

// targetOf returns the launcher in a VMI's pod.
func targetOf(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) target {
	t := target{
		VMI: types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}, UID: vmi.UID,
		Pod: pod.UID, Annotations: pod.Annotations,
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == names.ContainerCompute {
			_, t.KVM = c.Resources.Limits[names.ResourceKVM]
		}
	}
	return t
}

// end ends the session of a VMI and removes what is kept for its pod. It waits for neither; until then the pod has no
// other session.
func (r *Reconciler) end(vmi types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[vmi]
	if s == nil {
		return
	}
	delete(r.sessions, vmi)
	s.cancel()
	e, pod := &ending{}, s.target.Pod
	if r.ending == nil {
		r.ending = map[types.UID]*ending{}
	}
	r.ending[pod] = e
	r.ends.Go(func() {
		r.await(s)
		if err := r.Node.plans.Remove(pod); err != nil {
			r.Node.Log.Warn("network plan not removed", "pod", pod, "err", err)
		}
		if err := r.Node.Rights.Forget(pod); err != nil {
			r.Node.Log.Warn("record of devices not removed", "pod", pod, "err", err)
		}
		r.mu.Lock()
		delete(r.ending, pod)
		wanted := e.wanted
		r.mu.Unlock()
		if wanted {
			r.Enqueue(vmi, 0)
		}
	})
}

// await waits for the end of a session, but no longer than endLimit.
func (r *Reconciler) await(s *session) {
	if !s.end(r.Node.endLimit) {
		s.log.Warn("session given up: it has not ended in time", "limit", r.Node.endLimit)
	}
}

// Close waits for all sessions, whose context has ended, but for none longer than endLimit.
func (r *Reconciler) Close() {
	r.mu.Lock()
	for _, s := range r.sessions {
		r.ends.Go(func() { r.await(s) })
	}
	r.mu.Unlock()
	r.ends.Wait()
}

// Launcher returns the connected launcher of a VMI on this node.
func (r *Reconciler) Launcher(vmi types.NamespacedName) (launcherpb.LauncherClient, types.UID, error) {
	s := r.followed(vmi)
	if s == nil {
		return nil, "", fmt.Errorf("VirtualMachineInstance %s does not run on node %s", vmi, r.Node.Name)
	}
	l, err := s.launcher()
	return l, s.target.Pod, err
}

// Guest returns a context that ends when the guest of a VMI is gone from this node; its cause is a *stream.CloseError
// which says why. It has ended when the guest is not here.
func (r *Reconciler) Guest(vmi types.NamespacedName) context.Context {
	if s := r.followed(vmi); s != nil {
		return s.guest
	}
	return gone
}

// gone is the context of a guest that is not here.
var gone = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(streams.ErrUnfollowed)
	return ctx
}()
