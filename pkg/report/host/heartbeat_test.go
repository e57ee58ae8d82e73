package host

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestHeartbeat(t *testing.T) {
	at := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		`"2026-11-26T03:00:00Z"`:    at, // KubeVirt's
		"2026-11-26T03:00:00Z":      at,
		"2026-11-26T04:00:00+01:00": at,
		"":                          {},
		`"`:                         {},
		"yesterday":                 {},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1.VirtHandlerHeartbeat: text,
		}}}
		if got, err := Heartbeat(node); !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	if beat, err := Heartbeat(&corev1.Node{}); err == nil {
		t.Errorf("a node without a heartbeat has one: %s", beat)
	}
}

func TestLate(t *testing.T) {
	now := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]bool{
		-time.Minute: false, 0: false, time.Minute: false, 3 * time.Minute: false, 3*time.Minute + time.Second: true,
	} {
		if got := Late(now.Add(-age), now); got != want {
			t.Errorf("%s: %t", age, got)
		}
	}
}
