package evacuationcontroller

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

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

// TestApply: what a step writes, records and remembers, by the answer.
func TestApply(t *testing.T) {
	migration := Next(view()).Create
	warning := &vmicontroller.Event{Type: corev1.EventTypeWarning, Reason: ReasonBackoff, Message: "later"}
	const creates = "create VirtualMachineInstanceMigration "
	for name, tc := range map[string]struct {
		step       Step
		answer     error
		want       []string
		event      string
		fails      bool
		remembered bool
	}{
		"a migration": {
			step: Step{Create: migration}, want: []string{creates + migration.Name}, event: ReasonSuccessfulCreate,
			remembered: true,
		},
		"it is there": {
			step: Step{Create: migration}, want: []string{creates + migration.Name}, remembered: true,
			answer: apierrors.NewAlreadyExists(schema.GroupResource{}, migration.Name),
		},
		"it is refused": {
			step: Step{Create: migration}, want: []string{creates + migration.Name}, event: ReasonFailedCreate,
			answer: errors.New("no"), fails: true, remembered: true,
		},
		"a warning":             {step: Step{Event: warning}, event: ReasonBackoff, remembered: true},
		"it need not leave now": {step: Step{Forget: true}},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			server.Refuse(0, tc.answer)
			recorder := record.NewFakeRecorder(9)
			r := &Reconciler{Client: server, Recorder: recorder, writes: frame.NewWrites(server)}
			v := view()
			r.reported.Store(v.VMI.UID, *warning)
			if err := r.apply(t.Context(), v, &tc.step); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			close(recorder.Events)
			event := ""
			for text := range recorder.Events {
				event += strings.Fields(text)[1]
			}
			if _, remembered := r.reported.Load(v.VMI.UID); remembered != tc.remembered || event != tc.event {
				t.Errorf("event %q, remembered %t", event, remembered)
			}
			if !slices.Equal(server.Writes, tc.want) {
				t.Errorf("writes %q, want %q", server.Writes, tc.want)
			}
		})
	}
}
