//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// preferenceMark is an annotation that VMIs have from their VM's preference: its name.
const preferenceMark = "virtkit.test/preference"

// sized makes an instance type of so many MiB and a preference of the same name, and returns both.
func (c *cluster) sized(t *testing.T, ns, name string, mebibytes int) []client.Object {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	objects := []client.Object{
		&v1beta1.VirtualMachineInstancetype{ObjectMeta: meta, Spec: v1beta1.VirtualMachineInstancetypeSpec{
			CPU:    v1beta1.CPUInstancetype{Guest: 1},
			Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse(fmt.Sprintf("%dMi", mebibytes))},
		}},
		&v1beta1.VirtualMachinePreference{ObjectMeta: meta, Spec: v1beta1.VirtualMachinePreferenceSpec{
			Annotations: map[string]string{preferenceMark: name},
		}},
	}
	for _, object := range objects {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

// ofSize has a VM refer to what sized has made.
func ofSize(name string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory = nil
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: name, Kind: "VirtualMachineInstancetype"}
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: name, Kind: "VirtualMachinePreference"}
	}
}

// isOfSize checks what the instance has of its instance type and its preference.
func (g *guest) isOfSize(t *testing.T, name string, mebibytes int64) {
	t.Helper()
	vmi := g.vmi(t)
	if memory := vmi.Spec.Domain.Memory; memory == nil || memory.Guest == nil ||
		memory.Guest.Value() != mebibytes*mebibyte {
		t.Errorf("the guest has the memory %+v, want %d MiB", memory, mebibytes)
	}
	if of := vmi.Annotations[preferenceMark]; of != name {
		t.Errorf("the guest is of preference %q, want %q", of, name)
	}
}

// What belongs to a VM is in its snapshot and comes back with it: its EFI variables and the state of its TPM, its
// instance type and preference although their objects are gone, and a disk that only its instance had.
func TestSnapshotOfWhatBelongs(t *testing.T) {
	skipInShort(t)
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	small := c.sized(t, ns, "small", 256)
	c.sized(t, ns, "large", 288)
	g := c.create(t, newVM(ns, "owner", v1.RunStrategyAlways, withFirmware(true, true), ofSize("small"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitLogin(t)
	g.isOfSize(t, "small", 256)
	con := g.shell(t, tpm)
	con.run(t, "later=/sys/firmware/efi/efivars/VirtkitLater-7d1c1f3e-6b0a-4f0d-9d65-3b6f0f2c9a11")
	expectText(t, con, "nv define", "00000000")
	expectText(t, con, "nv write sealed-1", "00000000")
	con.run(t, `printf '\7\0\0\0kept-1' > $variable`)
	old := g.awaitStateClaim(t)
	c.claim(t, ns, plugged, corev1.PersistentVolumeBlock)
	g.virtctl(t, nil, "-n", ns, "addvolume", "vmi/"+g.name, "--volume-name="+plugged, "--wait", "--timeout=90s")
	seesPlugged(t, con)
	write := func(word string) {
		con.run(t, "echo "+word+" | dd of="+scsiDisk(plugged)+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	}
	const read = " bs=6 count=1 2>/dev/null"
	write("disk-1")

	taken := c.snapshot(t, ns, g.name, "before", snapshotv1beta1.VMSnapshotOnlineSnapshotIndication)
	want := []string{snapshots.StateVolume(g.name), plugged}
	if has := taken.Status.SnapshotVolumes; has == nil ||
		!slices.Equal(slices.Sorted(slices.Values(has.IncludedVolumes)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the snapshot has %+v, want the volumes %v", has, want)
	}

	expectText(t, con, "nv write sealed-2", "00000000")
	con.run(t, `printf '\7\0\0\0late-1' > $later`)
	expectText(t, con, "tail -c6 $later", "late-1")
	write("disk-2")
	expectText(t, con, "dd if="+scsiDisk(plugged)+read, "disk-2")
	g.virtctl(t, nil, "-n", ns, "stop", g.name)
	g.waitGone(t, 120*time.Second)
	vm := g.vm(t)
	before := vm.DeepCopy()
	ofSize("large")(vm)
	if err := c.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the VM is of the other size", func() string {
		status := g.vm(t).Status
		for _, ref := range []*v1.InstancetypeStatusRef{status.InstancetypeRef, status.PreferenceRef} {
			if ref == nil || ref.Name != "large" {
				return fmt.Sprintf("it refers to %+v", ref)
			}
		}
		return ""
	})
	for _, object := range small {
		if err := c.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	g.virtctl(t, nil, "-n", ns, "snapshot", "restore", taken.Name, "--wait", "--yes")
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	g.isOfSize(t, "small", 256)
	con = g.shell(t, tpm)
	con.run(t, "later=/sys/firmware/efi/efivars/VirtkitLater-7d1c1f3e-6b0a-4f0d-9d65-3b6f0f2c9a11")
	expectText(t, con, "nv read", "sealed-1")
	expectText(t, con, "tail -c6 $variable", "kept-1")
	expectText(t, con, "ls $later 2>/dev/null", "")
	seesPlugged(t, con)
	expectText(t, con, "dd if="+scsiDisk(plugged)+read, "disk-1")
	eventually(t, bootTime, "the state is on the restored claim, and the old one is gone", func() string {
		if named := vmstate.Claim(g.vmi(t)); named == nil || named.ClaimName == old {
			return fmt.Sprintf("the status names %+v", named)
		}
		if claims := g.stateClaims(t); len(claims) > 0 {
			return fmt.Sprintf("claims %v", claims)
		}
		return ""
	})
}
