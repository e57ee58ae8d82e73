package handler

import "testing"

// TestPerSecond has a unit in which a slow copy is not none.
func TestPerSecond(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0 KiB/s", 700 << 10: "700 KiB/s", 1<<20 - 1: "1023 KiB/s", 1 << 20: "1 MiB/s", 3 << 30: "3072 MiB/s",
	} {
		if got := perSecond(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
