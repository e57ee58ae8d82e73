package waits

import (
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: 20 * time.Second, 2: 40 * time.Second, 3: 80 * time.Second, 4: 160 * time.Second, 5: 5 * time.Minute,
		6:    5 * time.Minute,
		1000: 5 * time.Minute,
	} {
		if got := After(20*time.Second, 5*time.Minute, failures); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
	if got := After(time.Hour, 2*time.Hour, 1000); got != 2*time.Hour {
		t.Errorf("after many %s", got)
	}
}

func TestDoubling(t *testing.T) {
	longer := Doubling(200*time.Millisecond, 2*time.Second)
	for i, want := range []int64{200, 400, 800, 1600, 2000, 2000, 2000} {
		if got := longer().Milliseconds(); got != want {
			t.Errorf("wait %d is %d ms, want %d", i+1, got, want)
		}
	}
}
