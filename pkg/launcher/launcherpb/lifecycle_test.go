package launcherpb

import "testing"

func TestFinal(t *testing.T) {
	want := map[Lifecycle]bool{
		Lifecycle_LIFECYCLE_UNSPECIFIED: false, Lifecycle_LIFECYCLE_NONE: false, Lifecycle_LIFECYCLE_RUNNING: false,
		Lifecycle_LIFECYCLE_PAUSED: false, Lifecycle_LIFECYCLE_SHUTTING_DOWN: false,
		Lifecycle_LIFECYCLE_SHUTOFF: true, Lifecycle_LIFECYCLE_CRASHED: true, Lifecycle_LIFECYCLE_DESTROYED: true,
		Lifecycle_LIFECYCLE_MIGRATED: true,
	}
	for value, name := range Lifecycle_name {
		final, known := want[Lifecycle(value)]
		if !known {
			t.Errorf("%s: nobody has decided whether it is final", name)
		}
		if got := Lifecycle(value).Final(); got != final {
			t.Errorf("%s: %v", name, got)
		}
	}
}
