//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// The API server is away for longer than guests live without it, and none ends. Then a node is cut off, and nobody
// fences it: its launcher ends the guest, and only then the VM starts on another node.
func TestFenceAfter(t *testing.T) { // not parallel: its cluster must not be starved
	skipInShort(t)
	c := ownCluster(t, "e2e-fence", "--nodes", "3", "--node-monitor-grace-period", nodeGrace.String())
	const after = 40 * time.Second
	c.fenceAfter(t, after)
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g := &lossy{guest: c.create(t, newVM(ns, "fenced", v1.RunStrategyAlways, withClaim("data")))}
	g.waitLogin(t)
	g.count(t)

	g.outage(t, after)

	before, pod := g.lose(t, "cut")
	cut := time.Now()
	running := qemu(t, pod)
	if running == 0 {
		t.Fatal("the guest does not run on the node that is cut off")
	}
	ended := time.Duration(0)
	eventually(t, 5*time.Minute, "the VM starts on another node", func() string {
		if pid := qemu(t, pod); pid == 0 && ended == 0 {
			ended = time.Since(cut)
			t.Logf("the old guest has ended %.1f s after it was lost", ended.Seconds())
		}
		now := g.vmi(t)
		if now == nil || now.UID == before.UID {
			return "there is no new one yet"
		}
		if ended == 0 {
			t.Fatal("a new guest is made while the old one runs")
		}
		if now.Status.Phase != v1.Running {
			return fmt.Sprintf("it is %s", now.Status.Phase)
		}
		return ""
	})
	t.Logf("the new guest runs %.1f s after the old one was lost", time.Since(cut).Seconds())
	if after := g.vmi(t); after.Status.NodeName == before.Status.NodeName {
		t.Errorf("it is on %s, too", after.Status.NodeName)
	}
	g.waitLogin(t)
	g.count(t)
	g.look(t)
	g.node(t, "heal", before.Status.NodeName)
	g.waitSchedulable(t, before.Status.NodeName)
	g.look(t)
}

// outage stops the control plane for longer than the guest lives without it.
func (g *lossy) outage(t *testing.T, after time.Duration) {
	t.Helper()
	vmi, pod := g.vmi(t), g.pod(t).UID
	running := qemu(t, pod)
	if running == 0 {
		t.Fatal("the guest does not run")
	}
	eventually(t, 2*time.Minute, "three nodes vouch for each other", func() string {
		node, err := g.Kube.CoreV1().Nodes().Get(t.Context(), vmi.Status.NodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if set := node.Annotations[names.AnnotationFencingSet]; strings.Count(set, ",") != 2 {
			return "they are " + set
		}
		return ""
	})
	pid, err := g.ControlPlane()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceValue(func() error { return syscall.Kill(pid, syscall.SIGCONT) })
	defer func() {
		if err := resume(); err != nil {
			t.Errorf("continue the control plane: %v", err)
		}
	}()
	begin := time.Now()
	eventually(t, 2*after, "the API server is away for long enough", func() string {
		if qemu(t, pod) != running {
			t.Fatalf("the guest has ended %.1f s after the API server went away", time.Since(begin).Seconds())
		}
		if left := after + after/2 - time.Since(begin); left > 0 {
			return fmt.Sprintf("%s are left", left)
		}
		return ""
	})
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	// What was not heard of for so long may count as lost for a moment; it must not be given up.
	back := time.Now()
	eventually(t, 3*time.Minute, "the guest runs as before", func() string {
		node, err := g.Kube.CoreV1().Nodes().Get(t.Context(), vmi.Status.NodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if now := g.vmi(t); now == nil || now.UID != vmi.UID || qemu(t, pod) != running {
			t.Fatal("the guest was given up")
		} else if now.Status.Phase != v1.Running {
			return fmt.Sprintf("it is %s", now.Status.Phase)
		}
		if node.Labels[v1.NodeSchedulable] != "true" || time.Since(back) < after {
			return "the node is not heard of for long enough yet"
		}
		return ""
	})
	g.look(t)
}

// fenceAfter gives virt-controller the flag of that name.
func (c *cluster) fenceAfter(t *testing.T, after time.Duration) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--fence-after=%s"}]`,
		after)
	deployments := c.Kube.AppsV1().Deployments(names.Namespace)
	if _, err := deployments.Patch(t.Context(), names.VirtController,
		types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "virt-controller has its new flag", func() string {
		d, err := deployments.Get(t.Context(), names.VirtController, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !rolledOut(d) {
			return fmt.Sprintf("%+v", d.Status)
		}
		return ""
	})
}

// rolledOut reports whether a deployment's pods are all of its last version.
func rolledOut(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas &&
		s.Replicas == *d.Spec.Replicas && s.AvailableReplicas == *d.Spec.Replicas
}
