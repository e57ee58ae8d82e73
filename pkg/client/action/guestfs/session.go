package guestfs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

const (
	// poll is between two looks at a pod, beat between two lines of the lease.
	poll = 500 * time.Millisecond
	beat = 20 * time.Second
	// removal is how long a session's end may take: QEMU writes what it has, and the kubelet takes the pod away.
	removal = time.Minute
)

// Session is a claim's pod. Close ends it.
type Session struct {
	// Pod is as it was created.
	Pod *corev1.Pod

	api   API
	lease stream.PodProcess
	held  sync.WaitGroup
	// over is closed when the lease has ended, and why is set before.
	over chan struct{}
	why  error
}

// Open makes the pod, waits until it runs, and holds it. report, which may not be nil, is told what is waited for. The
// pod is deleted again when it does not come to run.
func Open(ctx context.Context, api API, plan Plan, report func(stage string)) (*Session, error) {
	s := &Session{api: api, Pod: &corev1.Pod{}}
	pod := Pod(plan)
	wait := lifetime * time.Second
	if limit, ok := ctx.Deadline(); ok {
		wait = time.Until(limit).Round(time.Second)
	}
	pod.Annotations = map[string]string{
		annotationSession: rand.Text(), names.AnnotationGuestfsWait: wait.String(),
	}
	err := api.CreateTyped(ctx, core, "pods", pod, s.Pod, false)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("pod %s/%s is there already, perhaps of another session: wait until it has ended, or "+
			"delete it", pod.Namespace, pod.Name)
	case err != nil && !client.Unanswered(err):
		return nil, fmt.Errorf("make pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case err != nil:
		// It may have been created; what has come of it is found by its name.
		s.Pod = pod
		if ctx.Err() != nil {
			err = ended(ctx, pod, "the API server does not answer")
		} else {
			err = fmt.Errorf("make pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil, errors.Join(err, s.removeByName(ctx))
	}
	if err := s.start(ctx, report); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// start waits until the pod runs, and takes the lease.
func (s *Session) start(ctx context.Context, report func(string)) error {
	for trouble := ""; ; {
		pod, err := s.look(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
		case errors.Is(err, errGone), err != nil && !client.Passing(err):
			return err
		case err != nil:
			trouble = "the API server does not say how it is"
		case life.PodEnded(pod):
			return fmt.Errorf("pod %s/%s has ended before it was used: %s", pod.Namespace, pod.Name, endOf(pod))
		case hopeless(pod):
			return &ImageError{pod.Spec.Containers[0].Image, life.PodTrouble(pod)}
		case pod.Status.Phase == corev1.PodRunning:
			return s.hold(ctx)
		default:
			if trouble = life.PodFault(pod); trouble != "" && report != nil {
				report(trouble)
			}
		}
		select {
		case <-ctx.Done():
			return ended(ctx, s.Pod, cmp.Or(trouble, "its node has not started it yet"))
		case <-time.After(poll):
		}
	}
}

// ended returns the error of a context that has ended before the pod ran.
func ended(ctx context.Context, pod *corev1.Pod, why string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	return fmt.Errorf("%w: pod %s/%s does not run: %s", action.ErrTimeout, pod.Namespace, pod.Name, why)
}

// ImageError is an image that the pod's node could not get, more than once.
type ImageError struct{ Image, Why string }

func (e *ImageError) Error() string { return fmt.Sprintf("image %s cannot be had: %s", e.Image, e.Why) }

// hopeless reports a pod whose image was not to be had, more than once.
func hopeless(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil {
			return w.Reason != life.ErrImagePull && life.ImageTrouble(w.Reason) != ""
		}
	}
	return false
}

func endOf(pod *corev1.Pod) string {
	if pod.Status.Message != "" {
		return pod.Status.Reason + ": " + pod.Status.Message
	}
	return life.PodTrouble(pod)
}

// hold takes the lease and sends its lines until the session is closed.
func (s *Session) hold(ctx context.Context) error {
	lease, err := s.api.PodProcess(ctx, s.Pod.Namespace, s.Pod.Name, "attach",
		url.Values{"container": {container}, "stdin": {"true"}}, stream.Options{})
	if err == nil {
		_, err = lease.Write([]byte("\n"))
	}
	if err != nil {
		return fmt.Errorf("attach to pod %s/%s: %w", s.Pod.Namespace, s.Pod.Name, err)
	}
	s.lease, s.over = lease, make(chan struct{})
	s.held.Go(func() {
		defer close(s.over)
		if s.why = lease.Follow(io.Discard, io.Discard); s.why == nil {
			s.why = errors.New("the pod's first process has ended")
		}
	})
	s.held.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-s.over:
				return
			case <-ticker.C:
				if _, err := lease.Write([]byte("\n")); err != nil {
					return
				}
			}
		}
	})
	return nil
}

// errGone is a pod that is not there any more.
var errGone = errors.New("was deleted")

// look reads the pod. One of the same name is not it. Errors: errGone.
func (s *Session) look(ctx context.Context) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	path := core + "/namespaces/" + url.PathEscape(s.Pod.Namespace) + "/pods/" + url.PathEscape(s.Pod.Name)
	switch err := s.api.Read(ctx, path, nil, pod); {
	case apierrors.IsNotFound(err), err == nil && pod.UID != s.Pod.UID:
		return nil, fmt.Errorf("pod %s/%s %w", s.Pod.Namespace, s.Pod.Name, errGone)
	case err != nil:
		return nil, fmt.Errorf("look at pod %s/%s: %w", s.Pod.Namespace, s.Pod.Name, err)
	}
	return pod, nil
}

// Close ends the session, also after ctx was cancelled: it deletes the pod and waits until that is gone, so that a VM
// may use the claim.
func (s *Session) Close(ctx context.Context) error {
	err := remove(ctx, s.api, s.Pod)
	if s.lease.Conn != nil {
		_ = s.lease.Close() // the pod's end is what counts
	}
	s.held.Wait()
	return err
}

// removeByName deletes the pod of a creation that nobody has answered.
func (s *Session) removeByName(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
	defer cancel()
	found := &corev1.Pod{}
	path := core + "/namespaces/" + url.PathEscape(s.Pod.Namespace) + "/pods/" + url.PathEscape(s.Pod.Name)
	switch err := s.api.Read(ctx, path, nil, found); {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && found.Annotations[annotationSession] != s.Pod.Annotations[annotationSession]:
		return nil // another session's
	case ctx.Err() != nil:
		return fmt.Errorf("pod %s/%s may have been made: the API server does not answer", s.Pod.Namespace, s.Pod.Name)
	case err != nil:
		return fmt.Errorf("pod %s/%s may have been made: %w", s.Pod.Namespace, s.Pod.Name, err)
	}
	return remove(ctx, s.api, found)
}

// remove deletes a pod and waits until it is gone.
func remove(ctx context.Context, api API, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
	defer cancel()
	failed := func(err error) error {
		return fmt.Errorf("pod %s/%s may still have the claim: %w; delete it", pod.Namespace, pod.Name, err)
	}
	switch err := api.DeleteObject(ctx, core, pod.Namespace, "pods", pod.Name, precondition(pod)); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another has its name
		return nil
	case ctx.Err() != nil:
		return failed(fmt.Errorf("%w: the API server does not answer", action.ErrTimeout))
	case err != nil:
		return failed(err)
	}
	s := Session{api: api, Pod: pod}
	for trouble := error(nil); ; {
		now, err := s.look(ctx)
		switch {
		case errors.Is(err, errGone), err == nil && now.DeletionTimestamp == nil: // gone, or nobody's to wait for
			return nil
		case ctx.Err() != nil && trouble != nil:
			return failed(fmt.Errorf("%w: %w", action.ErrTimeout, trouble))
		case ctx.Err() != nil:
			return failed(fmt.Errorf("%w: it has not ended in %s", action.ErrTimeout, removal))
		case err != nil && !client.Passing(err):
			return failed(err)
		}
		trouble = err
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
}
