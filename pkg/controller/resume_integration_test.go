//go:build integration

package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A VM whose disks do not fit the memory from which its guest is to go on does not start, and says why, until they do
// or until its user has it boot.
func TestMisfit(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("data", "local")
	vm := t.createVM(v1.RunStrategyHalted, "data")
	change := func(f func()) {
		t.Helper()
		t.must(cluster.Client.Get(t.ctx, t.key(vm.Name), vm))
		before := vm.DeepCopy()
		f()
		t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	}
	mark := savedmemory.Resume{Claim: "memory", Restore: "1", Disks: map[string]types.UID{"data": "another"}}
	text, err := mark.Encode()
	t.must(err)
	says := func(what string) {
		t.Helper()
		t.waitVM("says "+what, func(vm *v1.VirtualMachine) bool {
			failure := conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure)
			return failure != nil && failure.Reason == "MemoryDoesNotFit" && strings.Contains(failure.Message, what) &&
				!vm.Status.Created
		})
	}
	change(func() {
		vm.Annotations = map[string]string{savedmemory.ResumeAnnotation: text, snapshots.LastAnnotation: "late-2"}
		vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	})
	says("not the VM's last one")
	change(func() { vm.Annotations[snapshots.LastAnnotation] = "back-1" })
	says("the claim does not exist any more: its snapshot was deleted")
	t.boundClaim("memory", "local")
	change(func() { metav1.SetMetaDataAnnotation(&vm.ObjectMeta, "test", "look again") })
	says("claim data of volume data is not the one that the restore made")
	change(func() { delete(vm.Annotations, savedmemory.ResumeAnnotation) })
	t.waitVM("starts", func(vm *v1.VirtualMachine) bool {
		return vm.Status.Created && conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure) == nil
	})
}
