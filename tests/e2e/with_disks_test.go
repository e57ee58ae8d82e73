//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// A guest whose disk only its node has moves to another with that disk, by virtctl; takes it back when it is
// cancelled; and moves away from a node that is drained once the StorageClass of its claim has opted in. It writes all
// the while, and nothing is lost.
func TestMigrateWithDisks(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	needSnapshots(t) // of the driver that has the classes, too
	c := theCluster
	ns := c.namespace(t, "restricted")
	class := c.ownClass(t, "local-node", ns)
	c.classClaim(t, ns, "home", class, corev1.PersistentVolumeFilesystem, "64Mi")
	g := c.create(t, newVM(ns, "settler", v1.RunStrategyAlways, withEmptyDisk(), withDataOn("home"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.ObjectMeta.Labels["mover"] = ns
			vm.Spec.UpdateVolumesStrategy = nil // virtkit sets it
			strategy := v1.EvictionStrategyLiveMigrate
			vm.Spec.Template.Spec.EvictionStrategy = &strategy
		}))
	g.waitLogin(t)
	home := g.vmi(t).Status.NodeName
	con := g.shell(t, counter)
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")
	con.run(t, "dd if=/dev/urandom of=$D bs=4096 seek=5000 count=2500 2>/dev/null; sync")
	sum := con.run(t, dataSum)

	// Without its disk it cannot, and is told what helps.
	_, stderr, err := g.Virtctl(t.Context(), nil, "-n", ns, "migrate", g.name)
	if err == nil || !strings.Contains(stderr, "virtctl migrate settler --with-disks") {
		t.Errorf("without its disk: %v\n%s", err, stderr)
	}
	plan := g.virtctl(t, nil, "-n", ns, "migrate", g.name, "--with-disks", "--plan")
	if !strings.Contains(plan, "data: copied to new claim home-m1 of ") || !strings.Contains(plan, "class "+class) {
		t.Errorf("the plan is\n%s", plan)
	}
	g.refused(t, g.pod(t).Name, nil, "is not live-migratable")

	moved := g.virtctl(t, nil, "-n", ns, "migrate", g.name, "--with-disks", "--wait", "--timeout=4m")
	if !strings.Contains(moved, "Claim home, which volume data had, is kept; `kubectl delete pvc home") {
		t.Errorf("it says\n%s", moved)
	}
	g.settled(t, "home-m1")
	away := g.vmi(t).Status.NodeName
	if away == home {
		t.Error("the guest has not moved")
	}
	g.onlyOn(t, away)
	con = g.again(t)
	expectText(t, con, dataSum, sum)

	// Cancelled half way, it stays, and the new claim goes.
	end := g.slowly(t)
	last := g.vmi(t).Status.MigrationState
	g.virtctl(t, nil, "-n", ns, "migrate", g.name, "--with-disks", "--to", home)
	eventually(t, 3*time.Minute, "the disk is being copied", func() string {
		ms := g.vmi(t).Status.MigrationState
		if ms == nil || ms.MigrationUID == last.MigrationUID || ms.StartTimestamp == nil {
			return fmt.Sprintf("%+v", ms)
		}
		return ""
	})
	g.virtctl(t, nil, "-n", ns, "migrate-cancel", g.name, "--wait", "--timeout=2m")
	g.settled(t, "home-m1")
	eventually(t, 2*time.Minute, "the new claim is gone", func() string {
		return strings.Join(g.claimsBut(t, "home", "home-m1"), " ")
	})
	if at := g.vmi(t).Status.NodeName; at != away {
		t.Errorf("the guest is on node %s, and was on %s", at, away)
	}
	end()

	// A drain moves it once the class says so.
	optIn := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, volumemigration.OptInAnnotation)
	if _, err := g.Kube.StorageV1().StorageClasses().Patch(t.Context(), class, types.MergePatchType, optIn,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the VMI says it, too", func() string {
		if !volumemigration.OptedIn(g.vmi(t)) {
			return fmt.Sprintf("%v", g.vmi(t).Annotations)
		}
		return ""
	})
	g.refused(t, g.podOn(t, away), nil, "Eviction triggered evacuation of VMI")
	eventually(t, 4*time.Minute, "the guest has left", func() string {
		vmi := g.vmi(t)
		if vmi.Status.NodeName == away {
			return fmt.Sprintf("it is on %s: %+v", away, vmi.Status.MigrationState)
		}
		return ""
	})
	is := g.vm(t).Spec.Template.Spec
	g.settled(t, claims.Name(hotplug.Volume(&is, "data")))
	g.onlyOn(t, home)
	con = g.again(t)
	expectText(t, con, dataSum, sum)
	con.run(t, "( ("+check+") > /tmp/checked 2>&1 & )")
	eventually(t, 4*time.Minute, "the guest has read all that it wrote", func() string {
		if got := con.run(t, "cat /tmp/checked"); got != "bad 0" {
			return got + ", and reads on or is done"
		}
		return ""
	})
	if got := g.claimsBut(t, "home", "home-m1"); len(got) != 1 {
		t.Errorf("besides the claims that it had there are %v", got)
	}
}

// ownClass makes a StorageClass as another is, for the test alone.
func (c *cluster) ownClass(t *testing.T, of, suffix string) string {
	t.Helper()
	classes := c.Kube.StorageV1().StorageClasses()
	class, err := classes.Get(t.Context(), of, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	class.ObjectMeta = metav1.ObjectMeta{Name: of + "-" + suffix}
	if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := classes.Delete(ctx, class.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete StorageClass %s: %v", class.Name, err)
		}
	})
	return class.Name
}

// settled waits until the guest uses a claim, and nothing is left of what brought it there.
func (g *guest) settled(t *testing.T, claim string) {
	t.Helper()
	g.uses(t, claim)
	eventually(t, time.Minute, "nothing is left of the move", func() string {
		vm := g.vm(t)
		if record := volumemigration.RecordOf(vm); record != nil {
			return fmt.Sprintf("the VM has %+v", record)
		}
		if got := claims.Name(hotplug.Volume(&vm.Spec.Template.Spec, "data")); got != claim {
			return "the VM names " + got
		}
		var list v1.VirtualMachineInstanceMigrationList
		if err := g.Client.List(t.Context(), &list, client.InNamespace(g.ns)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if m := &list.Items[i]; slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer) {
				return "migration " + m.Name + " is not tidied up"
			}
		}
		return ""
	})
}

// podOn returns the pod of the guest that runs on a node.
func (g *guest) podOn(t *testing.T, node string) string {
	t.Helper()
	for _, pod := range g.pods(t) {
		if pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning {
			return pod.Name
		}
	}
	t.Fatalf("vm %s has no pod on node %s", g.name, node)
	return ""
}

// claimsBut returns the claims of the guest's namespace but for some.
func (g *guest) claimsBut(t *testing.T, known ...string) []string {
	t.Helper()
	list, err := g.Kube.CoreV1().PersistentVolumeClaims(g.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if name := list.Items[i].Name; !slices.Contains(known, name) {
			out = append(out, name)
		}
	}
	return out
}
