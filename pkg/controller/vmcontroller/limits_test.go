package vmcontroller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

const limitedGuest = "domain: {memory: {guest: 1Gi}}\nvolumes: [{name: root, containerDisk: {image: x}}]"

func withLimit(t *testing.T, generation int64, text string) *v1.VirtualMachine {
	t.Helper()
	vm := edited(t, generation, limitedGuest)
	if text != "" {
		vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"disk.virtkit.io/root": text}
	}
	return vm
}

// A limit that is changed reaches the instance of a guest that runs at once, also while it moves; where nothing is
// changed of such guests it waits for their next start, which the condition says. The verdict beforehand says the same.
func TestFollowLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		view          func(*View)
		want          string
		restart       bool
	}{
		"comes":     {before: "", after: "bps=1Mi", want: "bps=1Mi"},
		"changes":   {before: "bps=1Mi", after: "iops=5", want: "iops=5"},
		"goes":      {before: "bps=1Mi", after: ""},
		"unchanged": {before: "bps=1Mi", after: "bps=1Mi", want: "bps=1Mi"},
		"before it runs": {
			before: "bps=1Mi", after: "bps=2Mi", want: "bps=2Mi",
			view: func(view *View) { view.VMI.Status.Phase = v1.Scheduling },
		},
		"while it moves": {
			before: "bps=1Mi", after: "bps=2Mi", want: "bps=2Mi", view: func(view *View) {
				view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
					StartTimestamp: &metav1.Time{Time: now},
				}
			},
		},
		"while it ends": {
			before: "bps=1Mi", after: "bps=2Mi", want: "bps=1Mi",
			view: func(view *View) { view.VMI.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"staged": {
			before: "bps=1Mi", after: "bps=2Mi", want: "bps=1Mi", restart: true,
			view: func(view *View) { view.Staged = true },
		},
		"of the instance alone": {
			before: "bps=1Mi", after: "bps=1Mi", want: "bps=1Mi",
			view: func(view *View) { view.VMI.Annotations["disk.virtkit.io/root"] = "bps=9Mi" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := withLimit(t, 1, tc.before), withLimit(t, 2, tc.after)
			view := View{VM: is, VMI: admitted(t, was, true), Filled: true, Now: now}
			if tc.view != nil {
				tc.view(&view)
			}
			step := Next(view)
			if step.Invalid != nil {
				t.Fatal(step.Invalid)
			}
			if got := step.After.VMI.Annotations["disk.virtkit.io/root"]; got != tc.want {
				t.Errorf("the instance has %q, want %q", got, tc.want)
			}
			message := restartOf(status(t, step.After))
			const path = "spec.template.metadata.annotations[disk.virtkit.io/root]"
			if tc.restart != (message != "") || tc.restart && !strings.HasSuffix(message, ": "+path+
				" (vmRolloutStrategy is Stage)") {
				t.Errorf("RestartRequired is %q", message)
			}
			before, after := asMap(t, was), asMap(t, is)
			for _, v := range (rollout.Guest{Instance: view.VMI, Staged: view.Staged}).Verdicts(
				rollout.Compare(before, after), rollout.Edit{
					Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec,
				}) {
				if (v.Effect == rollout.Restart) != tc.restart {
					t.Errorf("the verdict is %+v", v)
				}
			}
			again := Next(View{VM: is, VMI: step.After.VMI, Filled: true, Now: now, Staged: view.Staged})
			if again.VMI != nil && !tc.restart && tc.want == tc.after {
				t.Errorf("the instance is written again: %v", again.VMI.Annotations)
			}
		})
	}
}
