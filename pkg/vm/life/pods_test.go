package life

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPod(t *testing.T) {
	for name, test := range map[string]struct {
		phase          corev1.PodPhase
		deleted        bool
		ended, staying bool
	}{
		"new":            {staying: true},
		"pending":        {phase: corev1.PodPending, staying: true},
		"running":        {phase: corev1.PodRunning, staying: true},
		"nobody knows":   {phase: corev1.PodUnknown, staying: true},
		"being deleted":  {phase: corev1.PodRunning, deleted: true},
		"succeeded":      {phase: corev1.PodSucceeded, ended: true},
		"failed":         {phase: corev1.PodFailed, ended: true},
		"failed, leaves": {phase: corev1.PodFailed, deleted: true, ended: true},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: test.phase}}
		if test.deleted {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		if ended, staying := PodEnded(pod), PodStaying(pod); ended != test.ended || staying != test.staying {
			t.Errorf("%s: ended %v, staying %v", name, ended, staying)
		}
	}
}
