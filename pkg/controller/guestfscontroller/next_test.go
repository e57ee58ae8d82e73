package guestfscontroller

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// pod is a session's that was made ten minutes ago.
func pod(phase corev1.PodPhase, endedAgo time.Duration) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "libguestfs-tools-disk", UID: "uid",
		Labels:            map[string]string{names.LabelComponent: names.VirtGuestfs},
		CreationTimestamp: metav1.NewTime(now.Add(-10 * time.Minute)),
	}}
	p.Status.Phase = phase
	if endedAgo > 0 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-endedAgo))},
		}}}
	}
	return p
}

func TestNext(t *testing.T) {
	going := pod(corev1.PodFailed, time.Hour)
	going.DeletionTimestamp = new(metav1.NewTime(now))
	evicted := pod(corev1.PodFailed, 0)
	evicted.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	waits := func(wait string) *corev1.Pod { // one that was made ten minutes ago
		p := pod(corev1.PodPending, 0)
		p.Annotations = map[string]string{names.AnnotationGuestfsWait: wait}
		return p
	}
	started := waits("8m20s")
	started.Status.Phase = corev1.PodRunning
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want Step
	}{
		"is waited for":        {waits("20m"), Step{Requeue: frame.Requeue{RequeueAfter: 11 * time.Minute}}},
		"is not waited for":    {waits("8m20s"), Step{Delete: true}},
		"has come to run":      {started, Step{}},
		"says nothing of that": {waits("ever"), Step{}},
		"waits":                {pod(corev1.PodPending, 0), Step{}},
		"runs":                 {pod(corev1.PodRunning, 0), Step{}},
		"has just ended": {
			pod(corev1.PodSucceeded, 20*time.Second), Step{Requeue: frame.Requeue{RequeueAfter: 40 * time.Second}},
		},
		"has ended":  {pod(corev1.PodSucceeded, 2*time.Minute), Step{Delete: true}},
		"has failed": {pod(corev1.PodFailed, 2*time.Minute), Step{Delete: true}},
		"never ran":  {pod(corev1.PodFailed, 0), Step{Delete: true}},
		"was evicted at once": {
			evicted, Step{Requeue: frame.Requeue{RequeueAfter: 59 * time.Second}},
		},
		"is being deleted": {going, Step{}},
	} {
		if got := Next(View{Pod: tc.pod, Now: now}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// Only what sessions have left is deleted, and what the API server says of that counts.
func TestApply(t *testing.T) {
	failed := errors.New("refused")
	ended := pod(corev1.PodSucceeded, 2*time.Minute)
	for name, tc := range map[string]struct {
		step   Step
		answer error
		want   []string
	}{
		"nothing":       {},
		"delete":        {Step{Delete: true}, nil, []string{"delete Pod libguestfs-tools-disk"}},
		"it is refused": {Step{Delete: true}, failed, []string{"delete Pod libguestfs-tools-disk"}},
	} {
		server := frametest.New(t, nil)
		server.Refuse(0, tc.answer)
		r := &Reconciler{Client: server, Now: func() time.Time { return now }, writes: frame.NewWrites(server)}
		err := r.apply(t.Context(), View{Pod: ended}, &tc.step)
		if !errors.Is(err, tc.answer) || !slices.Equal(server.Writes, tc.want) {
			t.Errorf("%s: %v, writes %q", name, err, server.Writes)
		}
	}
	r := &Reconciler{Now: func() time.Time { return now }}
	launcher := pod(corev1.PodFailed, time.Hour)
	launcher.Labels[names.LabelComponent] = names.VirtLauncher
	if _, err := r.look(t.Context(), launcher); !errors.Is(err, frame.ErrNothing) {
		t.Errorf("another's pod: %v", err)
	}
	if view, err := r.look(t.Context(), ended); err != nil || view.Pod != ended || view.Now != now {
		t.Errorf("%+v, %v", view, err)
	}
}
