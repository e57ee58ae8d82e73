//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// diskMover is a guest that moves with its disk while something fails: with a claim that one node alone can use.
type diskMover struct {
	*faulty
	// exchanged says that its VM names another claim, for which virt-controller makes migrations; else a migration
	// brings the disk.
	exchanged bool
	// sum is of the part of the disk that is written once.
	sum string

	// Of the case of now: the claim that the guest has at first, and the one that the VM names by hand. made are all
	// that the case has made beside, and strategy is how the VM has its volumes updated at first.
	stage     string
	had, next string
	made      []string
	strategy  *v1.UpdateVolumesStrategy
	// second is a migration that waits for the first one's end; nil for none.
	second *v1.VirtualMachineInstanceMigration
	// after are what is to be looked at when the guest is where it belongs.
	after []func(*testing.T)
}

// copyRate has a disk be copied slowly enough to be held half way, and the memory in some seconds; bytes a second.
const copyRate = 16 << 20

// run makes one migration, and something fail at a stage of it.
func (d *diskMover) run(t *testing.T, stage, victim string, want outcome) {
	begun := time.Now()
	defer d.release(t)
	for try := 1; !d.reach(t, stage); try++ {
		if try == 6 {
			t.Fatalf("%s was over each time before it could be held", stage)
		}
		t.Logf("try %d: %s could not be held", try, stage)
		d.release(t)
		d.settled(t, either)
	}
	if want != ends && d.overtaken(t, stage) {
		t.Logf("the migration is past %s already", stage)
		want = either
	}
	d.victims()[victim](t)
	d.release(t)
	d.settled(t, want)
	t.Logf("%s at %s: it %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// reach begins a migration and brings it to a stage; false when it was past it already.
func (d *diskMover) reach(t *testing.T, stage string) bool {
	t.Helper()
	d.faulty.next(t)
	d.stage, d.had, d.next, d.second, d.after = stage, d.inUse(t), "", nil, nil
	d.strategy = d.vm(t).Spec.UpdateVolumesStrategy
	d.stages()[stage](t)
	return !d.missed
}

// begins makes the migration, or has virt-controller make it.
func (d *diskMover) begins(t *testing.T) {
	t.Helper()
	if !d.exchanged {
		d.m = d.brings(t, fmt.Sprintf("fault-%d", d.n))
		return
	}
	known := d.migrations(t)
	d.names(t, d.another(t))
	eventually(t, 60*time.Second, "virt-controller makes a migration", func() string {
		for uid, m := range d.migrations(t) {
			if known[uid] == nil && m.Labels[v1.VolumesUpdateMigration] != "" {
				d.m = m
				return ""
			}
		}
		return fmt.Sprintf("%+v", conditions.Find(d.vmi(t).Status.Conditions, volumemigration.Condition))
	})
}

// brings makes a migration that brings the guest's disk.
func (d *diskMover) brings(t *testing.T, name string) *v1.VirtualMachineInstanceMigration {
	t.Helper()
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.ns, Name: name, Annotations: map[string]string{volumemigration.WithDisksAnnotation: "true"},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: d.name},
	}
	if err := d.Client.Create(t.Context(), m); err != nil {
		t.Fatalf("create migration: %v", err)
	}
	return m
}

// another makes a claim like the one that the guest has.
func (d *diskMover) another(t *testing.T) string {
	t.Helper()
	claim, err := d.Kube.CoreV1().PersistentVolumeClaims(d.ns).Get(t.Context(), d.had, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("disk-%d", d.n)
	if d.next != "" {
		name += "-too"
	}
	d.next, d.made = name, append(d.made, name)
	d.classClaim(t, d.ns, name, "local-node", corev1.PersistentVolumeFilesystem,
		claim.Spec.Resources.Requests.Storage().String())
	return name
}

// names has the VM name a claim, whose disk is to be copied.
func (d *diskMover) names(t *testing.T, claim string) {
	t.Helper()
	vm := d.vm(t)
	before := vm.DeepCopy()
	vm.Spec.UpdateVolumesStrategy = ptr(v1.UpdateVolumesStrategyMigration)
	for i := range vm.Spec.Template.Spec.Volumes {
		if v := &vm.Spec.Template.Spec.Volumes[i]; v.Name == "data" {
			v.PersistentVolumeClaim.ClaimName = claim
		}
	}
	if err := d.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// migrations are those of the namespace by UID.
func (d *diskMover) migrations(t *testing.T) map[types.UID]*v1.VirtualMachineInstanceMigration {
	t.Helper()
	var list v1.VirtualMachineInstanceMigrationList
	if err := d.Client.List(t.Context(), &list, client.InNamespace(d.ns)); err != nil {
		t.Fatal(err)
	}
	found := map[types.UID]*v1.VirtualMachineInstanceMigration{}
	for i := range list.Items {
		found[list.Items[i].UID] = &list.Items[i]
	}
	return found
}

// copies are the claims that were made for a migration.
func (d *diskMover) copies(t *testing.T, m *v1.VirtualMachineInstanceMigration) (found []string) {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := d.Client.List(t.Context(), &list, client.InNamespace(d.ns),
		client.MatchingLabels{volumemigration.CopiedByLabel: string(m.UID)}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	return found
}

// inUse is the claim that the guest uses.
func (d *diskMover) inUse(t *testing.T) string {
	t.Helper()
	return volumemigration.InUse(&d.vmi(t).Status, "data")
}

// stages bring a migration to a stage and hold it there: those of faulty, and others.
func (d *diskMover) stages() map[string]func(*testing.T) {
	all := d.faulty.stages()
	all["claimed"] = func(t *testing.T) {
		controllers := d.controllers(t)
		d.begin(t, nil)
		often(t, "the claim is made", func() bool { return len(d.copies(t, d.m)) > 0 })
		d.freezeAll(t, controllers)
		d.missed = volumemigration.RecordOf(d.vm(t)) != nil
	}
	all["named"] = func(t *testing.T) {
		controllers := d.controllers(t)
		if d.exchanged {
			d.freezeAll(t, controllers)
			d.names(t, d.another(t))
			return
		}
		d.begin(t, nil)
		often(t, "the VM names the claim", func() bool { return volumemigration.RecordOf(d.vm(t)) != nil })
		d.freezeAll(t, controllers)
		d.missed = slices.ContainsFunc(d.pods(t),
			func(pod corev1.Pod) bool { return pod.Labels[v1.MigrationJobLabel] == string(d.m.UID) })
	}
	all["scheduling"] = func(t *testing.T) {
		d.cordon(t, d.to, true)
		d.undo = append(d.undo, func() { d.cordon(t, d.to, false) })
		d.begin(t, nil)
		d.phase(t, v1.MigrationScheduling)
	}
	all["copying"] = func(t *testing.T) {
		d.undo = append(d.undo, d.bounded(t, copyRate))
		d.begin(t, nil)
		qemu := d.waitTarget(t, processQEMU)
		often(t, "a part of the disk is copied", func() bool {
			return writtenBy(qemu) > 2<<20 || errors.Is(syscall.Kill(qemu, 0), syscall.ESRCH)
		})
		d.freeze(t, qemu)
		d.missed = flows(t, d.process(t, d.handler(t, d.to), processServer))
	}
	all["landed"] = func(t *testing.T) {
		d.begin(t, nil)
		libvirtd := d.waitTarget(t, processLibvirtd)
		if !d.memoryFlows(t) {
			return
		}
		d.freeze(t, libvirtd)
		d.standsStill(t)
		d.freezeAll(t, d.controllers(t))
		if err := syscall.Kill(libvirtd, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, 60*time.Second, "the guest is at the target, or stays", func() string {
			vmi := d.vmi(t)
			d.missed = vmi.Status.MigrationState.Failed
			if vmi.Status.NodeName != d.to && !d.missed {
				return "it is on its way"
			}
			return ""
		})
	}
	return all
}

func (d *diskMover) freezeAll(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		d.freeze(t, pid)
	}
}

// writtenBy is how much a process has written to disks, bytes; 0 when it has ended.
func writtenBy(pid int) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return n
}

// targetClaim is the directory of the new claim, as the target's launcher has it.
func (d *diskMover) targetClaim(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("/proc/%d/root%s/data", d.process(t, &d.target, processLauncher), names.ClaimsDir)
}

// fills leaves no room in the new claim.
func (d *diskMover) fills(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.targetClaim(t), "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for buffer := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(buffer)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the new claim: %v", err)
	}
}
