package waits

import (
	"testing"
	"time"
)

func TestScaled(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": time.Minute, "1": time.Minute, "10": 10 * time.Minute,
		"0": time.Minute, "-3": time.Minute, "1.5": time.Minute, "1001": time.Minute, "much": time.Minute,
	} {
		t.Setenv(Variable, text)
		if got := Scaled(time.Minute); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		_, err := Factor()
		if bad := text != "" && text != "10" && want == time.Minute && text != "1"; (err != nil) != bad {
			t.Errorf("%q: %v", text, err)
		}
	}
}
