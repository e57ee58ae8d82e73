package handler

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// A stream of a guest that has moved away is told so also when its VMI is not this node's any more: QEMU here, and with
// it the end of its console, may take longer to go than that.
func TestLeavingOutlivesTheSession(t *testing.T) {
	for name, tc := range map[string]struct {
		state *launcherpb.GuestState
		want  bool
	}{
		"moved": {&launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_MIGRATED}, true},
		"moves": {&launcherpb.GuestState{Migration: &launcherpb.Migration{
			Phase: launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING,
		}}, true},
		"ended": {&launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_SHUTOFF}, false},
	} {
		s := &session{target: target{Pod: "pod"}}
		key := types.NamespacedName{Namespace: "ns", Name: "vm"}
		r := &Reconciler{sessions: map[types.NamespacedName]*session{key: s}}
		leaving, stranger := r.Leaving("pod"), r.Leaving("other")
		s.seen.Guest = tc.state
		delete(r.sessions, key)
		if leaving() != tc.want || stranger() {
			t.Errorf("%s: %t, and of another pod %t", name, leaving(), stranger())
		}
	}
}
