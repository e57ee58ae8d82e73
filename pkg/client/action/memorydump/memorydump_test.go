package memorydump

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
)

// refusing is a cluster with a running guest, which refuses dumps.
type refusing struct{ claims int }

func (refusing) Put(context.Context, string, string, string, string, any) error {
	return errors.New("the last was to another claim")
}

func (refusing) VMI(context.Context, string, string) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.Phase = v1.Running
	return vmi, nil
}

func (r *refusing) CreateObject(
	_ context.Context, _, _, _ string, object *unstructured.Unstructured, _ bool,
) (*unstructured.Unstructured, error) {
	r.claims++
	return object, nil
}

// TestRefused: a claim that was made for a dump that is refused is named.
func TestRefused(t *testing.T) {
	api := &refusing{}
	err := Get(t.Context(), api, "ns", "demo", "dump", &Claim{})
	if api.claims != 1 || err == nil || !strings.Contains(err.Error(), "kubectl delete pvc dump -n ns") {
		t.Errorf("%d claims, %v", api.claims, err)
	}
	if err := Get(t.Context(), api, "ns", "demo", "dump", nil); err == nil || strings.Contains(err.Error(), "delete") {
		t.Errorf("of a claim that was there: %v", err)
	}
}

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
