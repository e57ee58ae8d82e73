package vmcontroller

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

var errRefused = errors.New("refused")

// writesOf are what a VM's step writes, in order, where the write of a number is refused.
func writesOf(t *testing.T, strategy v1.VirtualMachineRunStrategy, change func(*world), refuse int) []string {
	t.Helper()
	w := newWorld(t, strategy)
	change(w)
	earlier := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.VM.Namespace, Name: "earlier", Labels: map[string]string{startRevisionLabel: string(w.VM.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.VM, v1.VirtualMachineGroupVersionKind)},
	}}
	w.Starts = []*appsv1.ControllerRevision{earlier}
	s := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme}, earlier)
	s.Refuse(refuse, errRefused)
	r := &Reconciler{Client: s, Live: s, Recorder: record.NewFakeRecorder(100), writes: frame.NewWrites(s)}
	step := Next(w.View)
	err := r.apply(t.Context(), w.View, &step)
	if step.Invalid == nil && refuse < 0 && err != nil {
		t.Errorf("after %q: %v", s.Writes, err)
	}
	return s.Writes
}

// TestApply: in which order a step is carried out, and what is written still after a write that is refused, as
// testdata/writes.golden has it.
func TestApply(t *testing.T) {
	var golden strings.Builder
	resumed := nexts[0]
	resumed.name, resumed.change = "has resumed", func(w *world) {
		w.VM.Annotations = map[string]string{savedmemory.ResumeAnnotation: "{}"}
		w.VMI.Annotations[savedmemory.ResumeAnnotation] = "{}"
	}
	for _, tc := range append(nexts, resumed) {
		story := frametest.Story(t, func(refuse int) []string { return writesOf(t, tc.strategy, tc.change, refuse) })
		if tc.name == "has resumed" && strings.Count(story, "\n") != 1 {
			t.Errorf("%s: %s", tc.name, story)
		}
		golden.WriteString(tc.name + "\n" + story)
	}
	compare(t, "testdata/writes.golden", golden.String())
}
