//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
	"github.com/virtkit/virtkit/tests/guests"
)

// classClaim makes a claim of a class; of local-node, and copies of that, it can be used on one node only.
func (c *cluster) classClaim(
	t *testing.T, ns, name, class string, mode corev1.PersistentVolumeMode, size string,
) {
	t.Helper()
	claim := guests.NewClaim(ns, name, mode)
	claim.Spec.StorageClassName = &class
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	if strings.HasPrefix(class, "local-node") {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// withDataOn gives a VM a disk with serial number DATA on a claim, and copies disks to other claims when it changes.
func withDataOn(claim string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		withDisks(claim)(vm)
		spec := &vm.Spec.Template.Spec
		spec.Volumes[len(spec.Volumes)-1].Name = "data"
		d := &spec.Domain.Devices.Disks[len(spec.Domain.Devices.Disks)-1]
		d.Name, d.Serial = "data", "DATA"
		vm.Spec.UpdateVolumesStrategy = ptr(v1.UpdateVolumesStrategyMigration)
	}
}

// exchange names another claim for the VM's volume data.
func (g *guest) exchange(t *testing.T, claim string) {
	t.Helper()
	vm := g.vm(t)
	before := vm.DeepCopy()
	for i := range vm.Spec.Template.Spec.Volumes {
		if v := &vm.Spec.Template.Spec.Volumes[i]; v.Name == "data" {
			v.PersistentVolumeClaim.ClaimName = claim
		}
	}
	if err := g.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// uses waits until the guest uses a claim, and nothing is under way any more.
func (g *guest) uses(t *testing.T, claim string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the guest uses claim "+claim, func() string {
		vm, vmi := g.vm(t), g.vmi(t)
		c := conditions.Find(vmi.Status.Conditions, volumemigration.Condition)
		is := volumemigration.InUse(&vmi.Status, "data")
		switch {
		case is != claim || volumemigration.Pending(vmi):
			return fmt.Sprintf("it uses %s; %+v", is, c)
		case vm.Status.VolumeUpdateState != nil:
			return "the VM's status says that disks are being copied"
		case conditions.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired) != nil:
			return fmt.Sprintf("%+v", conditions.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired))
		}
		return ""
	})
}

const dataSum = "dd if=$D bs=4096 skip=5000 count=2500 iflag=direct 2>/dev/null | sha256sum"

// A disk is copied to another claim while its guest writes to it, by virtctl: from a file to a device that only one
// node can use, and back; nothing is lost. A copy is cancelled, and the guest goes on where it was.
func TestVolumeMigration(t *testing.T) {
	t.Parallel()
	needSnapshots(t) // of the driver that has the classes, too
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.classClaim(t, ns, "files", "local", corev1.PersistentVolumeFilesystem, "64Mi")
	c.classClaim(t, ns, "unused", "local-node", corev1.PersistentVolumeBlock, "1Gi")
	g := c.create(t, newVM(ns, "mover", v1.RunStrategyAlways, withEmptyDisk(), withDataOn("files"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Labels["mover"] = ns
			vm.Spec.UpdateVolumesStrategy = nil // virtctl sets it
		}))
	g.waitLogin(t)
	home := g.vmi(t).Status.NodeName
	con := g.shell(t, counter)
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")
	con.run(t, "dd if=/dev/urandom of=$D bs=4096 seek=5000 count=2500 2>/dev/null; sync")
	sum := con.run(t, dataSum)

	g.moves(t, "device", "data", "--storage-class=local-node", "--volume-mode=block", "--access-mode=ReadWriteOnce",
		"--claim-name=device")
	away := g.vmi(t)
	g.onlyOn(t, away.Status.NodeName)
	if away.Status.NodeName == home {
		t.Error("the guest has not moved")
	}
	if c := conditions.Find(away.Status.Conditions, v1.VirtualMachineInstanceIsMigratable); c == nil ||
		c.Status != corev1.ConditionFalse {
		t.Errorf("a guest with a disk that only its node has: %+v", c)
	}
	con = g.again(t)
	expectText(t, con, dataSum, sum)
	eventually(t, 30*time.Second, "the guest sees that its disk is larger", func() string {
		if got := con.run(t, "cat /sys/block/${D##*/}/size"); got != "131072" {
			return "it has " + got + " sectors"
		}
		return ""
	})

	g.cancels(t)

	g.moves(t, "device-m1", "--storage-class=local", "--volume-mode=filesystem", "--access-mode=ReadWriteMany")
	g.onlyOn(t, g.vmi(t).Status.NodeName)
	con = g.again(t)
	expectText(t, con, dataSum, sum)
	con.run(t, "( ("+check+") > /tmp/checked 2>&1 & )") // by the number of its records that takes a while
	eventually(t, 4*time.Minute, "the guest has read all that it wrote", func() string {
		if got := con.run(t, "cat /tmp/checked"); got != "bad 0" {
			return got + ", and reads on or is done"
		}
		return ""
	})
	for _, claim := range []string{"files", "device"} {
		_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			t.Errorf("a claim that the guest had: %v", err)
		}
	}
}

// moves has virtctl copy disks, and waits until the guest uses a new claim for its volume data.
func (g *guest) moves(t *testing.T, claim string, arguments ...string) {
	t.Helper()
	words := append([]string{"-n", g.ns, "volume", "migrate", g.name, "--wait", "--timeout=3m"}, arguments...)
	out := g.virtctl(t, nil, words...)
	if want := "volume data of " + g.name + ": the guest uses claim " + claim + "\n"; !strings.HasSuffix(out, want) {
		t.Errorf("virtctl says\n%s, not %s", out, want)
	}
	g.uses(t, claim)
}

// A VM whose guest ended while its disk was copied does not start with the half of it, but with the claim that it had.
func TestVolumeMigrationUnfinished(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	t.Parallel()
	needSnapshots(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.classClaim(t, ns, "files", "local", corev1.PersistentVolumeFilesystem, "64Mi")
	c.classClaim(t, ns, "unused", "local-node", corev1.PersistentVolumeBlock, "1Gi")
	g := c.create(t, newVM(ns, "stopped", v1.RunStrategyManual, withEmptyDisk(), withDataOn("files"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Labels["mover"] = ns
		}))
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	con := g.shell(t, counter)
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")
	con.run(t, "dd if=/dev/urandom of=$D bs=4096 seek=5000 count=2500 2>/dev/null; sync")
	sum := con.run(t, dataSum)
	g.slowly(t)
	g.copying(t, "unused")
	g.virtctl(t, nil, "-n", ns, "stop", g.name, "--wait")
	eventually(t, time.Minute, "the VM says that it needs help", func() string {
		if vm := g.vm(t); !conditions.True(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired) {
			return fmt.Sprintf("%+v", vm.Status.Conditions)
		}
		return ""
	})
	if _, _, err := g.Virtctl(t.Context(), nil, "-n", ns, "start", g.name); err == nil {
		t.Error("a VM starts with half a disk")
	}
	vm := g.vm(t)
	patch := volumemigration.Revert(vm)
	why, stderr, _ := g.Virtctl(t.Context(), nil, "-n", ns, "why", g.name) // its exit code says that something is wrong
	if !strings.Contains(why, "ManualRecoveryRequired") || !strings.Contains(why, patch) {
		t.Errorf("why does not say %s:\n%s%s", patch, why, stderr)
	}
	if err := g.Client.Patch(t.Context(), vm, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the VM needs no help", func() string {
		if vm := g.vm(t); vm.Status.VolumeUpdateState != nil ||
			conditions.Find(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired) != nil {
			return fmt.Sprintf("%+v", vm.Status.Conditions)
		}
		return ""
	})
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	expectText(t, g.shell(t, counter), dataSum, sum)
}

// slowly bounds how fast the guest's memory and disks are copied. It returns what ends that.
func (g *guest) slowly(t *testing.T) (end func()) {
	t.Helper()
	return g.bounded(t, 1<<20)
}

// bounded is as slowly, with so many bytes a second.
func (g *guest) bounded(t *testing.T, rate int64) (end func()) {
	t.Helper()
	policy := &v1alpha1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: g.ns},
		Spec: v1alpha1.MigrationPolicySpec{
			Selectors: &v1alpha1.Selectors{
				VirtualMachineInstanceSelector: v1alpha1.LabelSelector{"mover": g.ns},
			},
			BandwidthPerMigration: resource.NewQuantity(rate, resource.BinarySI),
		},
	}
	if err := g.Client.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	end = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.IgnoreNotFound(g.Client.Delete(ctx, policy)); err != nil {
			t.Errorf("delete the policy: %v", err)
		}
	}
	t.Cleanup(end)
	return end
}

// copying names another claim for the guest's disk, and waits until the disk is being copied to it.
func (g *guest) copying(t *testing.T, claim string) {
	t.Helper()
	last := g.vmi(t).Status.MigrationState
	g.exchange(t, claim)
	eventually(t, 3*time.Minute, "the disk is being copied", func() string {
		vmi := g.vmi(t)
		ms := vmi.Status.MigrationState
		if ms == nil || last != nil && ms.MigrationUID == last.MigrationUID || ms.StartTimestamp == nil {
			return fmt.Sprintf("%+v", conditions.Find(vmi.Status.Conditions, volumemigration.Condition))
		}
		return ""
	})
	if state := g.vm(t).Status.VolumeUpdateState; state == nil || state.VolumeMigrationState == nil ||
		len(state.VolumeMigrationState.MigratedVolumes) != 1 {
		t.Errorf("the VM's status says %+v of the volumes", state)
	}
}

// cancels begins to copy the guest's disk, slowly, and takes that back. The migration alone is not cancelled.
func (g *guest) cancels(t *testing.T) {
	t.Helper()
	end := g.slowly(t)
	before := g.vmi(t)
	g.copying(t, "unused")
	_, stderr, err := g.Virtctl(t.Context(), nil, "-n", g.ns, "volume", "migrate", g.name, "--storage-class=local")
	if err == nil || !strings.Contains(stderr, "are being copied already: data from claim device to unused") {
		t.Errorf("another copy meanwhile: %v\n%s", err, stderr)
	}
	under := g.vmi(t).Status.MigrationState
	_, stderr, err = g.Virtctl(t.Context(), nil, "-n", g.ns, "migrate-cancel", g.name, "--wait", "--timeout=2m")
	if err == nil || !strings.Contains(stderr, "virtctl volume migrate "+g.name+" --cancel` cancels") {
		t.Errorf("its migration is cancelled, which would be made anew: %v\n%s", err, stderr)
	}
	if ms := g.vmi(t).Status.MigrationState; ms.MigrationUID != under.MigrationUID || ms.AbortRequested {
		t.Errorf("what was not cancelled: %+v", ms)
	}
	g.virtctl(t, nil, "-n", g.ns, "volume", "migrate", g.name, "--cancel", "--wait", "--timeout=2m")
	g.uses(t, "device")
	after := g.vmi(t)
	if after.Status.NodeName != before.Status.NodeName {
		t.Errorf("the guest is on node %s, and was on %s", after.Status.NodeName, before.Status.NodeName)
	}
	cond := conditions.Find(after.Status.Conditions, volumemigration.Condition)
	if cond == nil || cond.Status != corev1.ConditionFalse ||
		cond.Reason != v1.VirtualMachineInstanceReasonVolumesChangeCancellation {
		t.Errorf("after the change was taken back: %+v", cond)
	}
	end()
}
