//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/tests/instance"
)

// ram is what the guest has only in memory: a word, which boot it is, and how far its writer has counted.
const ram = "cat /tmp/word /proc/sys/kernel/random/boot_id /tmp/n"

// inGuest runs a script by the guest's agent.
func (g *guest) inGuest(t *testing.T, script string) (out string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the guest's agent runs "+script, func() string {
		said, stderr, err := theCluster.Virtctl(t.Context(), nil, "-n", g.ns, "exec", g.name, "--", "sh", "-c", script)
		if err != nil {
			return err.Error() + " " + stderr
		}
		out = strings.TrimSpace(said)
		return ""
	})
	return out
}

// withoutRoot has a guest's whole system in its memory. Its container disk, which it could write and which is lost when
// it stops, would keep the memory out of a snapshot.
func withoutRoot(vm *v1.VirtualMachine) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{
		KernelArgs: "console=ttyS0,115200 quiet loglevel=1 mitigations=off no_timer_check",
		Container: &v1.KernelBootContainer{
			Image: instance.TinyDisk(), KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd",
		},
	}}
	devices := &spec.Domain.Devices
	devices.Disks = slices.DeleteFunc(devices.Disks, func(d v1.Disk) bool { return d.Name == "root" })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == "root" })
}

// A restore of a snapshot with memory has the guest go on where it was: a program that counts goes on counting, on
// disks that are of the same moment. The start after that is a boot.
func TestSnapshotMemory(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	vm := countingVM(t, ns, "remembering")
	withoutRoot(vm)
	g := c.create(t, vm)
	g.waitLogin(t)
	con := g.shell(t, "")
	g.mountAll(t, con)
	con.run(t,
		`echo before >/tmp/word; (n=0; while :; do n=$((n+1)); echo $n >/tmp/next; mv /tmp/next /tmp/n; for d in `+
			strings.Join(counters, " ")+
			`; do echo $n >/$d/next; mv /$d/next /$d/n; sync; done; done) & echo $! >/tmp/writer`)
	boot := strings.Fields(g.inGuest(t, ram))[1]

	snapshot := &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "remembered", Annotations: map[string]string{savedmemory.IncludeAnnotation: "true"},
		},
		Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(g.name)},
	}
	c.take(t, snapshot)
	if !slices.Contains(indications(snapshot), snapshots.WithMemory) {
		t.Fatalf("indications: %v", indications(snapshot))
	}
	for _, i := range snapshot.Status.SourceIndications {
		t.Logf("%s: %s", i.Indication, i.Message)
	}
	eventually(t, time.Minute, "the claim for the memory is taken away from the guest", func() string {
		vmi := g.vmi(t)
		for _, volume := range vmi.Spec.Volumes {
			if savedmemory.IsVolume(volume.Name) {
				return volume.Name
			}
		}
		return ""
	})
	g.inGuest(t, "echo after >/tmp/word")
	went := strings.Fields(g.inGuest(t, ram))
	if went[0] != "after" || went[1] != boot {
		t.Fatalf("the guest that goes on says %v", went)
	}

	g.virtctl(t, nil, "-n", ns, "stop", g.name)
	g.waitGone(t, 60*time.Second)
	restore := &snapshotv1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "back"},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: machine(g.name), VirtualMachineSnapshotName: snapshot.Name,
		},
	}
	if err := c.Client.Create(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the VM is restored", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(restore), restore); err != nil {
			return err.Error()
		}
		if s := restore.Status; s == nil || s.Complete == nil || !*s.Complete {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	resumed := strings.Fields(g.inGuest(t, ram))
	if resumed[0] != "before" || resumed[1] != boot {
		t.Fatalf("the resumed guest says %v; it was in boot %s", resumed, boot)
	}
	eventually(t, time.Minute, "the writer goes on", func() string {
		if now := strings.Fields(g.inGuest(t, ram)); now[2] == resumed[2] {
			return fmt.Sprint(now)
		}
		return ""
	})
	g.inGuest(t, "kill $(cat /tmp/writer); sync")
	var numbers []int
	for _, disk := range counters {
		var n int
		if _, err := fmt.Sscan(g.inGuest(t, "cat /"+disk+"/n"), &n); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	oneInstant(t, numbers)
	if said := g.inGuest(t, "dmesg | grep -ci 'ext4-fs error\\|i/o error' || true"); said != "0" {
		t.Errorf("the guest's kernel complains of its disks: %s", g.inGuest(t, "dmesg | tail -20"))
	}
	eventually(t, 30*time.Second, "the VM forgets the memory", func() string {
		return g.vm(t).Annotations[savedmemory.ResumeAnnotation]
	})
	g.virtctl(t, nil, "-n", ns, "restart", g.name)
	eventually(t, 4*time.Minute, "the next start is a boot", func() string {
		said, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "exec", g.name, "--", "cat",
			"/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err.Error() + " " + stderr
		}
		if strings.TrimSpace(said) == boot {
			return "it is boot " + said
		}
		return ""
	})
}
