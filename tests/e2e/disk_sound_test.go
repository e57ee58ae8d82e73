//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

const (
	// onData has the guest's disk as $D.
	onData = `for d in /sys/block/vd*; do [ "$(cat $d/serial)" = DATA ] && D=/dev/${d##*/}; done; `
	// stillSum is of the part of the disk that is written once.
	stillSum = `echo 3 >/proc/sys/vm/drop_caches; dd if=$D bs=64k skip=512 count=400 2>/dev/null | sha256sum`
)

// settled waits until nothing is under way any more, and checks what is left: one guest on the claim that has its data,
// which is whole, no claim that nobody names, and status that is true.
func (d *diskMover) settled(t *testing.T, want outcome) {
	t.Helper()
	var claim string
	switch {
	case want == ends:
		claim = d.startsAnew(t)
	case d.exchanged:
		claim = d.copied(t, want)
	default:
		claim = d.brought(t, want)
	}
	d.componentsReady(t)
	d.nodesReady(t)
	d.guest.settled(t, claim)
	d.saysTrue(t, claim)
	d.whole(t, d.vmi(t).Status.NodeName)
	for _, look := range d.after {
		look(t)
	}
	d.leavesNothing(t)
	d.leavesClaims(t, claim)
}

// brought waits for the end of a migration that brings the disk, and returns the claim that the guest uses then.
func (d *diskMover) brought(t *testing.T, want outcome) string {
	t.Helper()
	var m *v1.VirtualMachineInstanceMigration
	eventually(t, 3*time.Minute, "migration "+d.m.Name+" is over", func() string {
		m = d.migrations(t)[d.m.UID]
		if m == nil || m.IsFinal() && m.DeletionTimestamp == nil {
			return ""
		}
		return fmt.Sprintf("phase %s, state %+v", m.Status.Phase, m.Status.MigrationState)
	})
	vmi := d.vmi(t)
	if vmi == nil || vmi.UID != d.uid {
		t.Fatal("the guest has ended")
	}
	moved := m == nil && vmi.Status.NodeName == d.to || m != nil && m.Status.Phase == v1.MigrationSucceeded
	if m != nil && !moved && m.Status.MigrationState != nil {
		t.Logf("failed: %s", m.Status.MigrationState.FailureReason)
	}
	if moved && want == stays || !moved && want == moves {
		t.Fatalf("moved: %t, but %q was wanted; migrationState %+v", moved, want, vmi.Status.MigrationState)
	}
	if !moved {
		return d.had
	}
	made := d.copies(t, d.m)
	if len(made) != 1 {
		t.Fatalf("migration %s has made claims %v", d.m.Name, made)
	}
	if d.second == nil {
		return made[0]
	}
	d.made = append(d.made, made[0])
	d.waitMigration(t, d.second, v1.MigrationSucceeded)
	back := d.copies(t, d.second)
	if len(back) != 1 || d.vmi(t).Status.NodeName != d.from {
		t.Fatalf("the second migration has made claims %v, and the guest is on %s", back, d.vmi(t).Status.NodeName)
	}
	return back[0]
}

// copied waits until the guest uses the claim that its VM names, and returns it.
func (d *diskMover) copied(t *testing.T, want outcome) string {
	t.Helper()
	claim := d.named(t)
	if want == stays && claim != d.had || want == moves && claim != d.next {
		t.Fatalf("the VM names claim %s, but the guest %q is wanted", claim, want)
	}
	d.uses(t, claim)
	if d.vmi(t).UID != d.uid {
		t.Fatal("the guest has ended")
	}
	if all := d.migrations(t); len(all) > 0 {
		d.m = slices.MaxFunc(slices.Collect(maps.Values(all)), migrations.ByAge)
	}
	return claim
}

// startsAnew waits until the VM has another guest, and returns the claim that it is to use: the one that the ended one
// used. A VM that names another has to be told that it shall not.
func (d *diskMover) startsAnew(t *testing.T) string {
	t.Helper()
	told := false
	eventually(t, 2*bootTime, "the VM starts its guest anew", func() string {
		needs := conditions.True(d.vm(t).Status.Conditions, v1.VirtualMachineManualRecoveryRequired)
		if d.exchanged && needs && !told {
			d.virtctl(t, nil, "-n", d.ns, "volume", "migrate", d.name, "--cancel")
			told = true
		}
		switch vmi := d.vmi(t); {
		case vmi == nil:
			return "there is no VMI"
		case vmi.UID == d.uid || vmi.Status.Phase != v1.Running:
			return fmt.Sprintf("VMI %s is %s", vmi.UID, vmi.Status.Phase)
		}
		return ""
	})
	d.waitLogin(t)
	switch {
	case d.stage != "landed":
		return d.had
	case d.exchanged:
		return d.next
	}
	made := d.copies(t, d.m)
	if len(made) != 1 {
		t.Fatalf("migration %s has made claims %v", d.m.Name, made)
	}
	return made[0]
}

// named is the claim that the VM names.
func (d *diskMover) named(t *testing.T) string {
	t.Helper()
	return claims.Name(hotplug.Volume(&d.vm(t).Spec.Template.Spec, "data"))
}

// saysTrue checks what VM, VMI and migrations say when nothing is under way.
func (d *diskMover) saysTrue(t *testing.T, claim string) {
	t.Helper()
	eventually(t, 60*time.Second, "the status is true", func() string {
		vm, vmi := d.vm(t), d.vmi(t)
		ready := conditions.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
		switch {
		case vmi.Status.Phase != v1.Running || ready == nil || ready.Status != corev1.ConditionTrue:
			return fmt.Sprintf("the VMI is %s, %+v", vmi.Status.Phase, ready)
		case vm.Status.PrintableStatus != v1.VirtualMachineStatusRunning:
			return "the VM is " + string(vm.Status.PrintableStatus)
		case conditions.Find(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired) != nil,
			conditions.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired) != nil:
			return fmt.Sprintf("the VM says %+v", vm.Status.Conditions)
		case conditions.True(vmi.Status.Conditions, volumemigration.Condition):
			return fmt.Sprintf("%+v", conditions.Find(vmi.Status.Conditions, volumemigration.Condition))
		case volumemigration.InUse(&vmi.Status, "data") != claim:
			return "the VMI's status has claim " + volumemigration.InUse(&vmi.Status, "data")
		case claims.Name(hotplug.Volume(&vmi.Spec, "data")) != claim:
			return "the VMI's spec has claim " + claims.Name(hotplug.Volume(&vmi.Spec, "data"))
		case migrations.UnderWay(vmi):
			return fmt.Sprintf("%+v", vmi.Status.MigrationState)
		}
		for _, m := range d.migrations(t) {
			ms := m.Status.MigrationState
			switch {
			case !m.IsFinal():
				return fmt.Sprintf("migration %s is %s", m.Name, m.Status.Phase)
			case m.Status.Phase == v1.MigrationFailed && (ms == nil || ms.FailureReason == ""):
				return fmt.Sprintf("no reason for the failure of %s: %+v", m.Name, ms)
			}
		}
		return ""
	})
	if is := d.vm(t).Spec.UpdateVolumesStrategy; claim == d.had && !d.exchanged &&
		!equality.Semantic.DeepEqual(is, d.strategy) {
		t.Errorf("updateVolumesStrategy is %v, and was %v", is, d.strategy)
	}
}

// whole checks that the VM has one guest, on a node, which goes on writing, and that its disk is what it has written.
func (d *diskMover) whole(t *testing.T, node string) {
	t.Helper()
	before := d.known
	d.sound(t, node)
	if d.known < before {
		t.Fatalf("the last record is %d, and was %d: the disk is an older one", d.known, before)
	}
	if sum := d.in(t, "sh", "-c", onData+stillSum); sum != d.sum {
		t.Fatalf("the disk has %q, and had %q", sum, d.sum)
	}
}

// leavesClaims checks that the namespace has no claims but those that the case began with or made, and the guest's;
// then it deletes all but the guest's, which nobody may hold.
func (d *diskMover) leavesClaims(t *testing.T, claim string) {
	t.Helper()
	known := append([]string{d.had, claim}, d.made...)
	eventually(t, 2*time.Minute, "no claim is left that nobody names", func() string {
		return strings.Join(d.claimsBut(t, known...), " ")
	})
	for _, name := range d.claimsBut(t, claim) {
		err := d.Kube.CoreV1().PersistentVolumeClaims(d.ns).Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	eventually(t, 2*time.Minute, "nobody holds the other claims", func() string {
		return strings.Join(d.claimsBut(t, claim), " ")
	})
	d.made = nil
}

func (d *diskMover) nodesReady(t *testing.T) {
	t.Helper()
	for _, name := range d.nodes(t) {
		eventually(t, 60*time.Second, "node "+name+" takes VMs", func() string {
			node, err := d.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return "it is not ready"
				}
			}
			if got := node.Labels[v1.NodeSchedulable]; got != "true" {
				return "schedulable is " + got
			}
			return ""
		})
	}
}

// tooSmall names a claim that is too small: the guest stays on its own, and the VMI says why.
func (d *diskMover) tooSmall(t *testing.T) {
	defer d.release(t)
	d.faulty.next(t)
	d.stage, d.had, d.next, d.second, d.after = "", d.inUse(t), "small", nil, nil
	d.made = []string{d.next}
	d.classClaim(t, d.ns, d.next, "local-node", corev1.PersistentVolumeFilesystem, "32Mi")
	d.names(t, d.next)
	eventually(t, 30*time.Second, "the VMI says that the claim is too small", func() string {
		c := conditions.Find(d.vmi(t).Status.Conditions, volumemigration.Condition)
		if c == nil || c.Reason != volumemigration.ReasonWaiting ||
			!strings.Contains(c.Message, "PersistentVolumeClaim small has 33554432 bytes") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	d.names(t, d.had)
	d.settled(t, stays)
}
