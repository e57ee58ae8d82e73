package config

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
	t.Setenv("GOMEMLIMIT", "")
	for text, want := range map[string]int64{"": 0, "1000": 900, "1073741824": 966367642} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv(EnvMemoryLimit, text)
		got, err := LimitMemory()
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if now := debug.SetMemoryLimit(-1); want > 0 && now != want {
			t.Errorf("%q: the limit is %d, want %d", text, now, want)
		}
	}
	for _, text := range []string{"1Gi", "-1", "0"} {
		t.Setenv(EnvMemoryLimit, text)
		if _, err := LimitMemory(); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	t.Setenv(EnvMemoryLimit, "1000")
	t.Setenv("GOMEMLIMIT", "500MiB")
	if got, err := LimitMemory(); got != 0 || err != nil {
		t.Errorf("besides GOMEMLIMIT: %d, %v", got, err)
	}
}
