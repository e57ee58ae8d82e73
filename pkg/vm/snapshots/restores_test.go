package snapshots

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
)

func TestRestoreEnded(t *testing.T) {
	type status = v1beta1.VirtualMachineRestoreStatus
	condition := func(of v1beta1.ConditionType, is corev1.ConditionStatus) *status {
		return &status{Conditions: []v1beta1.Condition{{Type: of, Status: is}}}
	}
	for name, test := range map[string]struct {
		status                  *status
		complete, failed, ended bool
	}{
		"new":           {},
		"not said":      {status: &status{}},
		"not yet":       {status: &status{Complete: new(false)}},
		"progressing":   {status: condition(v1beta1.ConditionProgressing, corev1.ConditionTrue)},
		"complete":      {status: &status{Complete: new(true)}, complete: true, ended: true},
		"failed":        {condition(v1beta1.ConditionFailure, corev1.ConditionTrue), false, true, true},
		"failed, False": {condition(v1beta1.ConditionFailure, corev1.ConditionFalse), false, true, true},
	} {
		r := &v1beta1.VirtualMachineRestore{Status: test.status}
		complete, failed, ended := RestoreComplete(r), RestoreFailed(r), RestoreEnded(r)
		if complete != test.complete || failed != test.failed ||
			ended != test.ended {
			t.Errorf("%s: complete %t, failed %t, ended %t", name, complete, failed, ended)
		}
	}
}

func TestRevisionName(t *testing.T) {
	for name, want := range map[string]string{
		"demo-large-1": "snap-large-1", "demo-demo-1": "snap-demo-1", "large-1": "large-1",
	} {
		if got := RevisionName(name, "demo", "snap"); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
