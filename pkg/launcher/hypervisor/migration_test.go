package hypervisor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBeforeMemory counts memory among what is left while the disks are copied.
func TestBeforeMemory(t *testing.T) {
	t.Parallel()
	got := Progress{DataTotal: 100, DataProcessed: 92, DataRemaining: 8, DiskRemaining: 8}.BeforeMemory(900)
	want := Progress{DataTotal: 1000, DataProcessed: 92, DataRemaining: 908, DiskRemaining: 8, MemoryRemaining: 900}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
