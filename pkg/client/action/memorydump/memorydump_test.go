package memorydump

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// TestReached has what is said at the end of --wait: the claim, and the file on it.
func TestReached(t *testing.T) {
	file := "demo-dump-20260102-030405.memory.dump"
	for name, tc := range map[string]struct {
		request *v1.VirtualMachineMemoryDumpRequest
		removed bool
		want    string
	}{
		"dumped": {
			&v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", FileName: &file}, false,
			"claim dump has the memory of VM demo, in the file " + file,
		},
		"file not named": {
			&v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump"}, false, "claim dump has the memory of VM demo",
		},
		"removed":           {nil, true, "VM demo has no claim for memory dumps any more; the dumps on it stay"},
		"removed by others": {nil, false, "VM demo had its memory dumped, and let go of the claim since"},
	} {
		vm := &v1.VirtualMachine{}
		vm.Name, vm.Status.MemoryDumpRequest = "demo", tc.request
		if got := Reached(vm, tc.removed); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
