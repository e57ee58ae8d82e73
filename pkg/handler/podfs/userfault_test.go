package podfs

import "testing"

func TestMiscMinor(t *testing.T) {
	const misc = "257 userfaultfd\n200 tun\n 59 memory_bandwidth\nx broken\n"
	for name, want := range map[string]uint32{"userfaultfd": 257, "memory_bandwidth": 59} {
		if got, ok := miscMinor(misc, name); !ok || got != want {
			t.Errorf("%s: %d %v", name, got, ok)
		}
	}
	for _, name := range []string{"broken", "fault", ""} {
		if got, ok := miscMinor(misc, name); ok {
			t.Errorf("%s: %d", name, got)
		}
	}
}
