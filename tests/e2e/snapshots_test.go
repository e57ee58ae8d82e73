//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// needSnapshots skips a test where storage without snapshots was asked for, and fails it where they are missing.
func needSnapshots(t *testing.T) {
	t.Helper()
	if os.Getenv("VIRTKIT_E2E_STORAGE") == "hostpath" {
		t.Skip("VIRTKIT_E2E_STORAGE=hostpath has no VolumeSnapshots")
	}
	if _, err := theCluster.Kube.Discovery().ServerResourcesForGroupVersion("snapshot.storage.k8s.io/v1"); err != nil {
		t.Fatalf("the cluster has no VolumeSnapshots: %v", err)
	}
}

// counters are the disks to which countingVM's guest writes the same rising number, one after the other. They are
// mounted at /NAME.
var counters = []string{"one", "two"}

// countingVM is a VM with a claim for each of counters.
func countingVM(t *testing.T, ns, name string) *v1.VirtualMachine {
	t.Helper()
	for _, disk := range counters {
		theCluster.claim(t, ns, disk, corev1.PersistentVolumeFilesystem)
	}
	return newVM(ns, name, v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		for _, disk := range counters {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
				Name: disk, Serial: strings.ToUpper(disk),
				DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			})
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: disk, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk},
				},
			}})
		}
	})
}

// plugged is a disk that is plugged into countingVM's running guest, to which it then writes, too.
const plugged = "three"

// plugIn plugs it in.
func (g *guest) plugIn(t *testing.T, con *console) {
	t.Helper()
	g.claim(t, g.ns, plugged, corev1.PersistentVolumeBlock)
	g.virtctl(t, nil, "-n", g.ns, "addvolume", g.name, "--volume-name="+plugged, "--wait", "--timeout=90s")
	seesPlugged(t, con)
}

// seesPlugged waits until the guest has the plugged disk, which comes to a guest that runs already.
func seesPlugged(t *testing.T, con *console) {
	t.Helper()
	eventually(t, bootTime, "the guest sees the disk", func() string {
		if con.run(t, "echo "+scsiDisk(plugged)) == "" {
			return "no such disk"
		}
		return ""
	})
}

// mount is a shell command that mounts a disk by its serial number, formatted when it is new.
func mount(disk string) string {
	device := fmt.Sprintf(`$(for d in /sys/block/vd*; do [ "$(cat $d/serial)" = %s ] && echo /dev/${d##*/}; done)`,
		strings.ToUpper(disk))
	if disk == plugged {
		device = scsiDisk(disk)
	}
	return fmt.Sprintf(
		`D=%s; mkdir -p /%[2]s; mount $D /%[2]s 2>/dev/null || { mke2fs $D >/dev/null && mount $D /%[2]s; }`,
		device, disk)
}

// mountAll mounts the counters' disks, and more.
func (g *guest) mountAll(t *testing.T, con *console, more ...string) {
	t.Helper()
	for _, disk := range slices.Concat(counters, more) {
		if disk == plugged {
			seesPlugged(t, con)
		}
		con.run(t, mount(disk))
		if got := con.run(t, "grep -c ' /"+disk+" ' /proc/mounts"); got != "1" {
			t.Fatalf("disk %s of %s is not mounted: %s", disk, g.name, got)
		}
	}
}

// counts reads the numbers that the counters' disks have, and more.
func counts(t *testing.T, con *console, more ...string) (numbers []int) {
	t.Helper()
	for _, disk := range slices.Concat(counters, more) {
		n, err := strconv.Atoi(con.run(t, "cat /"+disk+"/n"))
		if err != nil {
			t.Fatalf("disk %s: %v; the disks before it have %v", disk, err, numbers)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// oneInstant checks that the disks are of one instant: the writer writes to one after the other.
func oneInstant(t *testing.T, numbers []int) {
	t.Helper()
	first, last := numbers[0], numbers[len(numbers)-1]
	if d := first - last; d != 0 && d != 1 || !slices.IsSortedFunc(numbers, func(a, b int) int { return b - a }) {
		t.Errorf("the disks have %v, which they never had at one time", numbers)
	}
}

// A snapshot of a running guest is of one instant on all disks, which its agent freezes; the guest goes on at once. A
// restore brings it back, in place, until it is undone; a clone is another machine with the same data. A volume that
// was plugged in comes along.
func TestSnapshots(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	vm := countingVM(t, ns, "counting")
	withUserData("#cloud-config\nuser: root\npassword: tiny\n")(vm)
	vm.Spec.Template.Spec.Hostname = "abacus"
	g := c.create(t, vm)
	g.waitLogin(t)
	con := g.shell(t, "")
	knownAs(t, con, "abacus", "counting."+ns)
	g.plugIn(t, con)
	g.mountAll(t, con, plugged)
	con.run(t,
		`(n=0; while :; do n=$((n+1)); for d in `+strings.Join(counters, " ")+` `+plugged+
			`; do echo $n >/$d/next; mv /$d/next /$d/n; sync; done; done) & echo $! >/tmp/writer`)
	eventually(t, 30*time.Second, "the guest has written to the last disk", func() string {
		return con.run(t, "[ -s /"+plugged+"/n ] || echo nothing yet")
	})

	g.in(t, "true") // its agent answers, and has three file systems to freeze
	online := c.snapshot(t, ns, g.name, "online", snapshotv1beta1.VMSnapshotOnlineSnapshotIndication,
		snapshotv1beta1.VMSnapshotGuestAgentIndication)
	if online.Status.SnapshotVolumes == nil ||
		!slices.Equal(slices.Sorted(slices.Values(online.Status.SnapshotVolumes.IncludedVolumes)),
			[]string{"one", plugged, "two"}) {
		t.Errorf("included: %+v", online.Status.SnapshotVolumes)
	}
	eventually(t, 30*time.Second, "the guest goes on", func() string {
		vmi := g.vmi(t)
		if vmi.Status.FSFreezeStatus != "" {
			return "it is " + vmi.Status.FSFreezeStatus
		}
		for _, condition := range vmi.Status.Conditions {
			if condition.Type == v1.VirtualMachineInstancePaused && condition.Status == corev1.ConditionTrue {
				return "it is paused"
			}
		}
		return ""
	})
	before := counts(t, con)
	eventually(t, 30*time.Second, "the guest writes", func() string {
		if now := counts(t, con); now[0] <= before[0] {
			return fmt.Sprint(now)
		}
		return ""
	})
	con.run(t, "kill $(cat /tmp/writer); sync")
	after := counts(t, con, plugged)

	t.Run("clone", func(t *testing.T) { testClone(t, g, online.Name, after) })

	g.virtctl(t, nil, "-n", ns, "stop", g.name)
	g.waitGone(t, 60*time.Second)
	u := &user{guest: g, state: t.TempDir()}
	u.virtctl(t, "snapshot", "restore", online.Name, "--keep", "--wait", "--yes")
	if vm := g.vm(t); vm.Status.RestoreInProgress != nil || vm.UID == "" {
		t.Errorf("status: %+v", vm.Status)
	}
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	con = g.shell(t, "")
	g.mountAll(t, con, plugged)
	restored := counts(t, con, plugged)
	oneInstant(t, restored)
	if restored[0] >= after[0] || restored[0] == 0 {
		t.Errorf("the disks have %v; the snapshot was made before they had %v", restored, after)
	}

	g.virtctl(t, nil, "-n", ns, "stop", g.name)
	g.waitGone(t, 60*time.Second)
	t.Run("undo", func(t *testing.T) { u.undoRestore(t, after) })
}

// snapshot takes one and waits until it is ready.
func (c *cluster) snapshot(t *testing.T, ns, vm, name string, wants ...snapshotv1beta1.Indication,
) *snapshotv1beta1.VirtualMachineSnapshot {
	t.Helper()
	snapshot := &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(vm)},
	}
	c.take(t, snapshot)
	for _, want := range wants {
		if !slices.Contains(indications(snapshot), want) {
			t.Errorf("indications %v, want %s", indications(snapshot), want)
		}
	}
	return snapshot
}

// take has a snapshot taken, and waits until it is ready.
func (c *cluster) take(t *testing.T, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	if err := c.Client.Create(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	c.awaitSnapshot(t, snapshot)
}

// awaitSnapshot waits until a snapshot is ready.
func (c *cluster) awaitSnapshot(t *testing.T, snapshot *snapshotv1beta1.VirtualMachineSnapshot) {
	t.Helper()
	eventually(t, 2*time.Minute, "the snapshot is ready", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot); err != nil {
			return err.Error()
		}
		if s := snapshot.Status; s == nil || s.ReadyToUse == nil || !*s.ReadyToUse ||
			s.Phase != snapshotv1beta1.Succeeded {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// indications say how a snapshot was made.
func indications(snapshot *snapshotv1beta1.VirtualMachineSnapshot) (out []snapshotv1beta1.Indication) {
	for _, i := range snapshot.Status.SourceIndications {
		out = append(out, i.Indication)
	}
	return out
}

// machine refers to a VM.
func machine(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: ptr("kubevirt.io"), Kind: "VirtualMachine", Name: name}
}

// testClone makes another machine, in another namespace, of a snapshot of a guest whose disks were behind numbers. Who
// makes it must be allowed to in both namespaces.
func testClone(t *testing.T, g *guest, snapshot string, numbers []int) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	target := machine("clone")
	clone := &clonev1beta1.VirtualMachineClone{
		TypeMeta: metav1.TypeMeta{APIVersion: clonev1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "copy", Annotations: map[string]string{clones.NamespaceAnnotation: g.ns},
		},
		Spec: clonev1beta1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{
				APIGroup: ptr("snapshot.kubevirt.io"), Kind: "VirtualMachineSnapshot", Name: snapshot,
			},
			Target: &target,
		},
	}
	tenant := c.tenant(t, ns).CoreV1().RESTClient()
	create := func() error {
		body, err := json.Marshal(clone)
		if err != nil {
			t.Fatal(err)
		}
		path := "/apis/clone.kubevirt.io/v1beta1/namespaces/" + ns + "/virtualmachineclones"
		return tenant.Post().AbsPath(path).Body(body).Do(t.Context()).Error()
	}
	if err := create(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "virtualmachineclones/source") {
		t.Fatalf("a clone by who has no right in the source's namespace: %v", err)
	}
	grant := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "clones"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user-of-" + ns}},
	}
	if _, err := c.Kube.RbacV1().RoleBindings(g.ns).Create(t.Context(), grant, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the right in the source's namespace has come", func() string {
		if err := create(); err != nil {
			return err.Error()
		}
		return ""
	})
	eventually(t, 2*time.Minute, "the VM is cloned", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(clone), clone); err != nil {
			return err.Error()
		}
		if clone.Status.Phase != clonev1beta1.Succeeded {
			return fmt.Sprintf("%+v", clone.Status)
		}
		return ""
	})
	copied := &guest{cluster: c, ns: ns, name: "clone"}
	if vm := copied.vm(t); vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy == v1.RunStrategyHalted {
		copied.virtctl(t, nil, "-n", ns, "start", "clone")
	}
	copied.waitLogin(t)
	con := copied.shell(t, "")
	knownAs(t, con, "clone", "clone."+ns)
	copied.mountAll(t, con, plugged)
	got := counts(t, con, plugged)
	oneInstant(t, got)
	if got[0] >= numbers[0] || got[0] == 0 {
		t.Errorf("the clone's disks have %v; the snapshot was made before they had %v", got, numbers)
	}
	was, is := g.vmi(t), copied.vmi(t)
	if was.Status.Interfaces[0].MAC == is.Status.Interfaces[0].MAC {
		t.Errorf("both have the MAC address %s", is.Status.Interfaces[0].MAC)
	}
	if was.Spec.Domain.Firmware.UUID == is.Spec.Domain.Firmware.UUID {
		t.Errorf("both have the UUID %s", is.Spec.Domain.Firmware.UUID)
	}
	copied.virtctl(t, nil, "-n", ns, "stop", "clone")
	copied.waitGone(t, 60*time.Second)
	eventually(t, time.Minute, "the clone leaves no VolumeSnapshotContent", func() string {
		return c.copiesLeft(t, clone)
	})
}

// knownAs checks the names by which a guest knows itself: its host name, and cloud-init's for the machine.
func knownAs(t *testing.T, con *console, host, instance string) {
	t.Helper()
	expectText(t, con, "hostname", host)
	expectText(t, con, "cat /run/cloud-init/instance-id", instance)
}

// copiesLeft describes the VolumeSnapshotContents that a clone has made, with what they wait for.
func (c *cluster) copiesLeft(t *testing.T, clone *clonev1beta1.VirtualMachineClone) string {
	t.Helper()
	contents, snapshots := &snapshotsv1.VolumeSnapshotContentList{}, &snapshotsv1.VolumeSnapshotList{}
	if err := errors.Join(c.Client.List(t.Context(), contents),
		c.Client.List(t.Context(), snapshots, client.InNamespace(clone.Namespace)),
		c.Client.Get(t.Context(), client.ObjectKeyFromObject(clone), clone)); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, o := range contents.Items {
		if o.Spec.VolumeSnapshotRef.Namespace == clone.Namespace {
			fmt.Fprintf(&out, "\nVolumeSnapshotContent %s: deleted %v, finalizers %v, annotations %v", o.Name,
				o.DeletionTimestamp, o.Finalizers, o.Annotations)
		}
	}
	if out.Len() == 0 {
		return ""
	}
	for _, o := range snapshots.Items {
		fmt.Fprintf(&out, "\nVolumeSnapshot %s: deleted %v, finalizers %v", o.Name, o.DeletionTimestamp, o.Finalizers)
	}
	fmt.Fprintf(&out, "\nclone: finalizers %v, status %+v", clone.Finalizers, clone.Status)
	return out.String()
}
