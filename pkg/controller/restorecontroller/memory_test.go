package restorecontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

func TestResume(t *testing.T) {
	ended := now
	for name, tc := range map[string]struct {
		change func(*View, *savedmemory.Memory)
		why    string
	}{
		"in place": {func(*View, *savedmemory.Memory) {}, ""},
		"half":     {func(_ *View, m *savedmemory.Memory) { m.Ended = nil }, "not saved to the end"},
		"failed":   {func(_ *View, m *savedmemory.Memory) { m.Failure = "no space" }, "not saved to the end"},
		"lapsed": {func(v *View, _ *savedmemory.Memory) {
			v.Snapshot.Status.SourceIndications = []v1beta1.SourceIndication{
				{Indication: v1beta1.VMSnapshotQuiesceTimeoutIndication},
			}
		}, "do not fit its memory"},
		"another VM": {func(v *View, _ *savedmemory.Memory) { v.VM = nil }, "another one"},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t)
			for i := range v.Volumes {
				v.Volumes[i].Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "made"}}
			}
			memory := &savedmemory.Memory{
				Claim: "c", Saved: savedmemory.Saved{Began: now, Ended: &ended}, MACs: map[string]string{"a": "m"},
			}
			tc.change(v, memory)
			text, err := memory.Encode()
			if err != nil {
				t.Fatal(err)
			}
			v.Content.Annotations = map[string]string{savedmemory.MemoryAnnotation: text}
			vm, step := &v1.VirtualMachine{}, Step{}
			vm.Annotations = map[string]string{savedmemory.ResumeAnnotation: "an earlier one"}
			if err := v.resume(vm, &step); err != nil {
				t.Fatal(err)
			}
			mark, err := savedmemory.ResumeOf(vm.Annotations)
			if err != nil || len(step.Events) != 1 || !strings.Contains(step.Events[0].Message, tc.why) {
				t.Fatalf("%+v, %v", step.Events, err)
			}
			if tc.why != "" {
				if mark != nil || step.Events[0].Reason != reasonBoots {
					t.Errorf("%+v, %+v", mark, step.Events)
				}
				return
			}
			if mark == nil || mark.Claim != "c" || mark.Restore != v.Restore.UID || mark.MACs["a"] != "m" ||
				len(mark.Disks) != 2 || step.Events[0].Reason != reasonResumes {
				t.Errorf("%+v, %+v", mark, step.Events)
			}
		})
	}
	// A snapshot without memory ends what an earlier restore wanted.
	v, vm, step := viewOf(t), &v1.VirtualMachine{}, Step{}
	vm.Annotations = map[string]string{savedmemory.ResumeAnnotation: "an earlier one"}
	if err := v.resume(vm, &step); err != nil || len(vm.Annotations) > 0 || len(step.Events) > 0 {
		t.Errorf("%v, %v, %+v", err, vm.Annotations, step.Events)
	}
}
