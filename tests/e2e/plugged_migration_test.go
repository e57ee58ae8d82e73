//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// withPluggedData is withDataOn with a disk that is hotplugged.
func withPluggedData(claim string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		withDataOn(claim)(vm)
		volumes := vm.Spec.Template.Spec.Volumes
		volumes[len(volumes)-1].PersistentVolumeClaim.Hotpluggable = true
	}
}

// A disk that was plugged in is copied to another claim while its guest writes to it: by virtctl volume migrate to a
// device that only one node can use, and on to another node with migrate --with-disks. A copy that is reverted half way
// leaves the guest where it was, with its old claim alone.
func TestPluggedDiskMigration(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	needSnapshots(t) // of the driver that has the classes, too
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.classClaim(t, ns, "files", "local", corev1.PersistentVolumeFilesystem, "64Mi")
	c.classClaim(t, ns, "unused", "local-node", corev1.PersistentVolumeBlock, "1Gi")
	g := c.create(t, newVM(ns, "plugmover", v1.RunStrategyAlways, withEmptyDisk(), withPluggedData("files"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Labels["mover"] = ns
			vm.Spec.UpdateVolumesStrategy = nil // virtctl sets it
		}))
	g.waitLogin(t)
	g.hasPlugged(t, "files")
	con := g.shell(t, counter)
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")
	con.run(t, "dd if=/dev/urandom of=$D bs=512 seek=40000 count=20000 2>/dev/null; sync")
	sum := con.run(t, dataSum)

	g.moves(t, "device", "data", "--storage-class=local-node", "--volume-mode=block", "--access-mode=ReadWriteOnce",
		"--claim-name=device")
	g.hasPlugged(t, "device")
	con = g.again(t)
	expectText(t, con, dataSum, sum)

	g.cancels(t)
	g.hasPlugged(t, "device")

	home := g.vmi(t).Status.NodeName
	g.virtctl(t, nil, "-n", ns, "migrate", g.name, "--with-disks", "--wait", "--timeout=4m")
	g.settled(t, "device-m1")
	g.hasPlugged(t, "device-m1")
	away := g.vmi(t).Status.NodeName
	if away == home {
		t.Error("the guest has not moved")
	}
	g.onlyOn(t, away)
	con = g.again(t)
	expectText(t, con, dataSum, sum)
	con.run(t, "( ("+check+") > /tmp/checked 2>&1 & )") // by the number of its records that takes a while
	eventually(t, 4*time.Minute, "the guest has read all that it wrote", func() string {
		if got := con.run(t, "cat /tmp/checked"); got != "bad 0" {
			return got + ", and reads on or is done"
		}
		return ""
	})
	g.virtctl(t, nil, "-n", ns, "removevolume", g.name, "--volume-name=data", "--wait")
	g.noAttachment(t)
}

// hasPlugged waits until the guest has its volume data plugged in on a claim, which one attachment pod holds, and
// the VM and the VMI name it as one that is hotplugged.
func (g *guest) hasPlugged(t *testing.T, claim string) {
	t.Helper()
	eventually(t, 2*time.Minute, "the guest has claim "+claim+" plugged in", func() string {
		vm, vmi := g.vm(t), g.vmi(t)
		for _, spec := range []*v1.VirtualMachineInstanceSpec{&vm.Spec.Template.Spec, &vmi.Spec} {
			if v := hotplug.Volume(spec, "data"); v == nil || !hotplug.Is(v) || claims.Name(v) != claim {
				return fmt.Sprintf("it is to have %+v", v)
			}
		}
		if vmi.Annotations[hotplug.CopiesAnnotation] != "" {
			return "the VMI has " + vmi.Annotations[hotplug.CopiesAnnotation]
		}
		held := g.attached(t)
		if len(held) != 1 || held[0] != claim {
			return "attachment pods hold " + strings.Join(held, " ")
		}
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == "data" && s.Phase == v1.VolumeReady && claims.OfStatus(&s) == claim {
				return ""
			}
		}
		return fmt.Sprintf("%+v", vmi.Status.VolumeStatus)
	})
}

// attached returns the claims that attachment pods of the guest's namespace hold.
func (g *guest) attached(t *testing.T) []string {
	t.Helper()
	pods, err := g.Kube.CoreV1().Pods(g.ns).List(t.Context(),
		metav1.ListOptions{LabelSelector: v1.AppLabel + "=" + names.HotplugDisk})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range pods.Items {
		for _, v := range pods.Items[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				out = append(out, v.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	return out
}

// noAttachment waits until no attachment pod is left.
func (g *guest) noAttachment(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "no attachment pod is left", func() string {
		return strings.Join(g.attached(t), " ")
	})
}
