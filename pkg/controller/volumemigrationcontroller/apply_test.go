package volumemigrationcontroller

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

// TestApply: what a step writes and records, by the answers. The status comes before the migration that rests on it.
func TestApply(t *testing.T) {
	no := errors.New("no")
	const says = "patch status of VirtualMachineInstance vm"
	moves := "create VirtualMachineInstanceMigration " + Next(copying(described)).Migrate
	reverted := func(view *View) {
		described(view)
		view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "a"
		view.Migrations = []*v1.VirtualMachineInstanceMigration{migration("m", true, v1.MigrationRunning)}
	}
	const marks = "patch PersistentVolumeClaim a"
	onClaim := func(view *View) {
		view.Sources = map[string]*corev1.PersistentVolumeClaim{"a": claim("a", "64Mi")}
	}
	const cancels = "delete VirtualMachineInstanceMigration m"
	for name, tc := range map[string]struct {
		change func(*View)
		// refuse is the number of the write that is answered with an error.
		refuse int
		answer error
		want   []string
		event  string
		fails  bool
	}{
		"new":               {want: []string{says}},
		"new, refused":      {answer: no, want: []string{says}, fails: true},
		"new, from a claim": {change: onClaim, want: []string{marks, says}},
		"the claim is gone": {
			change: onClaim, answer: apierrors.NewNotFound(schema.GroupResource{}, "a"), want: []string{marks, says},
		},
		"the claim's mark is refused": {change: onClaim, answer: no, want: []string{marks}, fails: true},
		"described": {
			change: described, want: []string{says, moves}, event: migrationcontroller.ReasonSuccessfulCreate,
		},
		"the status is refused": {change: described, answer: no, want: []string{says}, fails: true},
		"the migration is there": {
			change: described, refuse: 1, answer: apierrors.NewAlreadyExists(schema.GroupResource{}, "m"),
			want: []string{says, moves},
		},
		"the migration is refused": {
			change: described, refuse: 1, answer: no, want: []string{says, moves},
			event: migrationcontroller.ReasonFailedCreate, fails: true,
		},
		"reverted": {change: reverted, want: []string{cancels}, event: migrationcontroller.ReasonSuccessfulDelete},
		"it has gone by itself": {
			change: reverted, answer: apierrors.NewNotFound(schema.GroupResource{}, "m"), want: []string{cancels},
		},
		"the cancellation is refused": {change: reverted, answer: no, want: []string{cancels}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			server.Refuse(tc.refuse, tc.answer)
			recorder := record.NewFakeRecorder(9)
			r := &Reconciler{Client: server, Recorder: recorder, writes: frame.NewWrites(server)}
			view := copying(tc.change)
			step := Next(view)
			if err := r.apply(t.Context(), view, &step); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			close(recorder.Events)
			event := ""
			for text := range recorder.Events {
				event += strings.Fields(text)[1]
			}
			if event != tc.event {
				t.Errorf("event %q, want %q", event, tc.event)
			}
			if !slices.Equal(server.Writes, tc.want) {
				t.Errorf("writes %q, want %q", server.Writes, tc.want)
			}
		})
	}
}
