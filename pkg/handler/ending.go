package handler

import "k8s.io/apimachinery/pkg/types"

// ending is a session that was told to end and may not have yet.
type ending struct {
	// wanted says that the pod is to have another session.
	wanted bool
}

// forget ends a session, which is in the map of sessions no more, and removes what was kept for its pod. It waits for
// neither; until then the pod has no other session. The caller holds r.mu.
func (r *Reconciler) forget(s *session) {
	s.cancel()
	e, pod := &ending{}, s.target.Pod
	if r.ending == nil {
		r.ending = map[types.UID]*ending{}
	}
	r.ending[pod] = e
	r.ends.Go(func() {
		r.await(s)
		if err := r.Node.plans.remove(pod); err != nil {
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
			r.Enqueue(s.target.VMI, 0)
		}
	})
}

// await waits for the end of a session, but no longer than endLimit.
func (r *Reconciler) await(s *session) {
	if !s.end(r.Node.endLimit) {
		s.log.Warn("session left behind: it has not ended in time", "limit", r.Node.endLimit)
	}
}
