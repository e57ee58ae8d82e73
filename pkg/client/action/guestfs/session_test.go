package guestfs_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/guestfs"
	"github.com/virtkit/virtkit/pkg/client/action/guestfs/guestfstest"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
)

// open opens a session at the server's claim.
func open(t *testing.T, ctx context.Context, s *guestfstest.Server) (*guestfs.Session, error) {
	t.Helper()
	c := s.Client()
	claim, err := guestfs.Claim(t.Context(), c, guestfstest.Namespace, guestfstest.Claim)
	if err != nil {
		t.Fatal(err)
	}
	return guestfs.Open(ctx, c, guestfs.Plan{Claim: claim, Image: "example.com/x:1"}, func(string) {})
}

// A session holds its pod by the lease, and the pod that it deletes is its own.
func TestSession(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Run = func(process stream.Packets, command []string, query url.Values) int {
		if strings.Join(command, " ") != "cat -n" || query.Get("stdin") != "true" || query.Get("tty") != "" {
			t.Errorf("%q, %v", command, query)
		}
		buffer := make([]byte, stream.BufferSize)
		for {
			n, err := process.Read(buffer)
			switch {
			case err != nil:
				t.Error(err)
				return 1
			case bytes.Equal(buffer[:n], []byte{255, 0}): // the end of the input
				if _, err := process.Write([]byte("\x02done")); err != nil {
					t.Error(err)
				}
				return 3
			}
			buffer[0] = 1 // what was read comes back
			if _, err := process.Write(buffer[:n]); err != nil {
				t.Error(err)
			}
		}
	}
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	err = session.Run(t.Context(), guestfs.Program{
		Command: []string{"cat", "-n"}, Stdin: strings.NewReader("input"), Stdout: &out, Stderr: &errOut,
	})
	var exit *stream.ProcessExitError
	if !errors.As(err, &exit) || exit.Code != 3 || out.String() != "input" || errOut.String() != "done" {
		t.Errorf("%v, %q, %q", err, &out, &errOut)
	}
	// The first line comes at once.
	deadline := time.Now().Add(20 * time.Second)
	for leases, lines := s.Lease(); leases != 1 || lines != 1; leases, lines = s.Lease() {
		if time.Now().After(deadline) {
			t.Fatalf("%d leases, %d lines", leases, lines)
		}
	}
	if err := session.Close(t.Context()); err != nil || s.Made() != nil || s.Deleted() != "pod-uid" {
		t.Errorf("%v, pod %v, deleted %q", err, s.Made(), s.Deleted())
	}
}

// An API server that does not say how the pod is for a moment says neither that it is gone nor that it cannot run.
func TestSessionSurvivesAnOutage(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Failing = 1
	session, err := open(t, t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	s.Failing, s.Lingers = 1, 2
	if err := session.Close(t.Context()); err != nil || s.Made() != nil || s.Failing != 0 {
		t.Errorf("%v, pod %v", err, s.Made())
	}
}

// A pod that does not come to run says why, and does not stay.
func TestOpenFails(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	unscheduled := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node has KVM",
	}}}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		want   string
		is     error
	}{
		"there is no image": {
			waiting("ImagePullBackOff", "no such tag"),
			"image example.com/x:1 cannot be had: ImagePullBackOff: no such tag", nil,
		},
		"it is never pulled": {
			waiting("ErrImageNeverPull", "not present"), "cannot be had: ErrImageNeverPull", nil,
		},
		"the image is slow": {
			waiting("ErrImagePull", "again"), "does not run: ErrImagePull: again", action.ErrTimeout,
		},
		"no node takes it": {unscheduled, "does not run: Unschedulable: no node has KVM", action.ErrTimeout},
		"it has ended": {
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "full"},
			"ended before it was used: Evicted: full", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
			s.Status = tc.status
			ctx := t.Context()
			if tc.is != nil {
				late, end := clienttest.Late()
				looks := 0
				s.Looked = func() {
					if looks++; looks == 2 { // what the first has shown is known
						end()
					}
				}
				ctx = late
			}
			_, err := open(t, ctx, s)
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			if s.Made() != nil || s.Deleted() != "pod-uid" {
				t.Errorf("pod %v, deleted %q", s.Made(), s.Deleted())
			}
		})
	}
}

// A creation that nobody answers before the user gives up leaves no pod, and takes no other session's away.
func TestOpenIsNotAnswered(t *testing.T) {
	for _, own := range []bool{true, false} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		c := s.Client()
		claim, err := guestfs.Claim(t.Context(), c, guestfstest.Namespace, guestfstest.Claim)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s.Created = func(pod *corev1.Pod) {
			if !own {
				pod.Annotations = nil
			}
			cancel()
		}
		_, err = guestfs.Open(ctx, c, guestfs.Plan{Claim: claim}, nil)
		if !errors.Is(err, context.Canceled) || (s.Made() == nil) != own {
			t.Errorf("own %t: %v, pod %v", own, err, s.Made())
		}
	}
}

// A creation whose answer is cut leaves no pod, and virt-controller knows how long one is waited for.
func TestOpenIsCut(t *testing.T) {
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	s.Unanswered = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := open(t, ctx, s); err == nil || s.Made() != nil || s.Deleted() != "pod-uid" {
		t.Errorf("%v, pod %v", err, s.Made())
	}
	s.Unanswered = false
	for want, ctx := range map[time.Duration]context.Context{24 * time.Hour: t.Context(), time.Hour: ctx} {
		session, err := open(t, ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := time.ParseDuration(s.Made().Annotations[names.AnnotationGuestfsWait])
		if err != nil || got > want || got < want-time.Minute {
			t.Errorf("it is waited for %s, %v; want %s", got, err, want)
		}
		if err := session.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// A pod that is refused, or there already, is not deleted.
func TestOpenIsRefused(t *testing.T) {
	kind := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		answer error
		want   string
	}{
		"there is one": {apierrors.NewAlreadyExists(kind, guestfstest.Pod), "is there already"},
		"it is not safe": {
			apierrors.NewForbidden(kind, guestfstest.Pod, errors.New("violates PodSecurity")), "violates PodSecurity",
		},
	} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		c := s.Client()
		claim, err := guestfs.Claim(t.Context(), c, guestfstest.Namespace, guestfstest.Claim)
		if err != nil {
			t.Fatal(err)
		}
		s.Put("/api/v1/namespaces/"+guestfstest.Namespace+"/pods", tc.answer)
		_, err = guestfs.Open(t.Context(), c, guestfs.Plan{Claim: claim}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range s.Asked("/" + guestfstest.Pod) {
			if r.Method == http.MethodDelete {
				t.Errorf("%s: the pod was deleted", name)
			}
		}
	}
}
