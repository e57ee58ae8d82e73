package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// tied returns a VM whose guest runs on a claim of one node, and its instance.
func tied(name string, shareable bool) (v1.VirtualMachine, v1.VirtualMachineInstance) {
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("vm-" + name)}}
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)},
	}}
	vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", name+"-data")}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", Shareable: &shareable}}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node1"
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: name + "-data", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
	return vm, vmi
}

// TestMigrateWithDisks moves a guest that its disks keep on its node: the question says that they are copied. One whose
// disks cannot be copied is refused, and one that needs no copies moves as ever.
func TestMigrateWithDisks(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := world(f)
	copied, copiedVMI := tied("copied", false)
	fixed, fixedVMI := tied("fixed", true)
	moving, movingVMI := tied("moving", false)
	movingVMI.Spec.Volumes, movingVMI.Status.VolumeStatus = nil, nil
	movingVMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
	}}
	w.Machines.Load([]v1.VirtualMachine{copied, fixed, moving},
		[]v1.VirtualMachineInstance{copiedVMI, fixedVMI, movingVMI})
	a := New(w)
	t.Cleanup(a.Close)
	drive(t, a, sizes[2])
	shows := func(text string) {
		t.Helper()
		if screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " "); !strings.Contains(screen, text) {
			t.Errorf("%q is not shown:\n%s", text, a.screen())
		}
	}
	press(t, a, "g", "m")
	shows("Migrate prod/copied? It can move only with its disks, which are copied to new claims; the old claims are " +
		"kept, unless an annotation says Delete.")
	press(t, a, "y")
	press(t, a, "j", "m")
	shows("It cannot be migrated; w says why")
	press(t, a, "*", "m")
	shows("1 of them can move only with its disks")
	press(t, a, "y")
	want := []string{
		"migrate prod/copied with its disks", "migrate prod/copied with its disks", "migrate prod/moving",
	}
	if !slices.Equal(f.done, want) {
		t.Errorf("did %q", f.done)
	}
	press(t, a, "L")
	shows("virtctl migrate copied --namespace prod --with-disks && virtctl migrate moving --namespace prod")
}

// TestEvacuateWithDisks has the guests of a node leave with their disks.
func TestEvacuateWithDisks(t *testing.T) {
	t.Parallel()
	guest := evacuate.Guest{Namespace: "prod", Name: "db", Outcome: evacuate.Stays, Reason: "its disks keep it"}
	leaves := guest
	leaves.Outcome, leaves.Reason, leaves.WithDisks, leaves.Target = evacuate.Moves, "", true, "node2"
	f := &fake{
		plan:      &evacuate.Report{Node: "node1", Guests: []evacuate.Guest{guest}},
		withDisks: &evacuate.Report{Node: "node1", Guests: []evacuate.Guest{leaves}},
	}
	a := New(world(f))
	t.Cleanup(a.Close)
	drive(t, a, sizes[2])
	run(t, a, a.home(func(w *page.World) page.Page { return page.NewEvacuation(w, "node1") }), 0)
	shows := func(texts ...string) {
		t.Helper()
		screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				t.Errorf("%q is not shown:\n%s", text, a.screen())
			}
		}
	}
	shows("stays prod/db", "its disks keep it", "W with disks")
	press(t, a, "W")
	shows("moves prod/db node2 with its disks", "W without disks")
	press(t, a, "E")
	shows("Evacuate node node1 of its 1 guest? The disks of 1 are copied to new claims; the old claims are kept, " +
		"unless an annotation says Delete.")
	press(t, a, "esc", "W")
	shows("stays prod/db")
	press(t, a, "W", "E", "y", "W")
	shows("The evacuation has begun")
	press(t, a, "L")
	shows("virtctl evacuate node1 --with-disks --yes")
}
