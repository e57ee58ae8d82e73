package snapshots

import (
	"testing"
	"time"
)

// virt-controller comes first, then virt-handler, then the launcher, however long a guest may be frozen.
func TestWhoThaws(t *testing.T) {
	for most, want := range map[time.Duration][2]time.Duration{
		time.Second:      {800 * time.Millisecond, 950 * time.Millisecond},
		6 * time.Second:  {4800 * time.Millisecond, 5700 * time.Millisecond},
		10 * time.Second: {8 * time.Second, 9500 * time.Millisecond},
		5 * time.Minute:  {298 * time.Second, 299500 * time.Millisecond},
		24 * time.Hour:   {24*time.Hour - 2*time.Second, 24*time.Hour - 500*time.Millisecond},
	} {
		controller, handler := ControllerThaws(most), HandlerThaws(most)
		if got := [2]time.Duration{controller, handler}; got != want {
			t.Errorf("%s: %v, want %v", most, got, want)
		}
		if controller >= handler || handler >= most {
			t.Errorf("%s: virt-controller after %s, virt-handler after %s", most, controller, handler)
		}
		if again := MostFrozen(controller); again != most {
			t.Errorf("%s became %s", most, again)
		}
	}
	for left := time.Duration(0); left < time.Minute; left += 123 * time.Millisecond {
		if again := ControllerThaws(MostFrozen(left)); (again - left).Abs() > time.Nanosecond {
			t.Errorf("%s became %s", left, again)
		}
	}
}
