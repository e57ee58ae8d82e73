package handler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDeadline(t *testing.T) {
	deleted := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) // as the API server writes 12:00:00.9
	for _, test := range []struct {
		name  string
		grace int64
		now   time.Duration // after deleted
		want  time.Duration
	}{
		{"seen at once, at the end of the second", 3, 900 * time.Millisecond, 3900 * time.Millisecond},
		{"seen late", 30, 10 * time.Second, 31 * time.Second},
		{"the node's clock is behind", 30, -time.Minute, -30 * time.Second},
		{"no grace", 0, 500 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			vmi := newVMI()
			vmi.DeletionTimestamp = new(metav1.NewTime(deleted))
			vmi.Spec.TerminationGracePeriodSeconds = &test.grace
			if got := deadline(vmi, deleted.Add(test.now)).Sub(deleted); got != test.want {
				t.Errorf("power-off after %v, want %v", got, test.want)
			}
		})
	}
}
