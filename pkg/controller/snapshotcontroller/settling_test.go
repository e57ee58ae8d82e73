package snapshotcontroller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A snapshot whose deadline passes while the guest is frozen says how the guest was quiesced: it waits for the content
// to say so, but not for ever.
func TestDeadlineOfAFrozenGuest(t *testing.T) {
	const deadline = 4 * time.Second
	const moment = deadline + time.Millisecond
	frozen, thawed := FreezeRecord{}, FreezeRecord{Thawed: true, Quiesced: snapshots.QuiescedPaused}
	for name, test := range map[string]struct {
		age   time.Duration
		of    *FreezeRecord
		waits bool
		// says are the indications of the status.
		says int
	}{
		"frozen":                {age: moment, of: &frozen, waits: true},
		"frozen, long after it": {age: deadline + settle, of: &frozen},
		"thawed":                {age: moment, of: &thawed, says: 3},
		"nothing was frozen":    {age: moment},
	} {
		snapshot := inPhase(v1beta1.InProgress, test.age, false)
		snapshot.Spec.FailureDeadline = &metav1.Duration{Duration: deadline}
		content := &v1beta1.VirtualMachineSnapshotContent{}
		if test.of != nil {
			recorded(*test.of)(content)
		}
		step := Next(View{Snapshot: snapshot, VM: vmLockedBy("snap"), Content: content, Now: now})
		if waits := step.Status == nil && step.RequeueAfter > 0; waits != test.waits {
			t.Errorf("%s: waits %t, step %+v", name, waits, step)
		}
		if step.Status != nil && len(step.Status.SourceIndications) != test.says {
			t.Errorf("%s: %+v", name, step.Status.SourceIndications)
		}
	}
}
