package kubevirtcontroller

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

// TestApply: the status is written where it changes, and only a write that was done counts as one.
func TestApply(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		status  *v1.KubeVirtStatus
		answer  error
		writes  int
		written bool
	}{
		"nothing to write": {},
		"a status":         {status: &v1.KubeVirtStatus{Phase: v1.KubeVirtPhaseDeployed}, writes: 1, written: true},
		"it is the same":   {status: &v1.KubeVirtStatus{}, written: true},
		"it is refused": {
			status: &v1.KubeVirtStatus{Phase: v1.KubeVirtPhaseDeployed}, writes: 1, answer: errors.New("no"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			server.Refuse(0, tc.answer)
			r := &Reconciler{Client: server, writes: frame.NewWrites(server)}
			view := View{KubeVirt: &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt"}}, Now: at}
			err := r.apply(t.Context(), view, &Step{Status: tc.status})
			if !errors.Is(err, tc.answer) || len(server.Writes) != tc.writes || r.written.Equal(at) != tc.written {
				t.Errorf("error %v, writes %q, last write %s", err, server.Writes, r.written)
			}
		})
	}
}
