//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// A node is cut off, and nobody fences it. Its launcher ends the guest, and only then the VM starts on the other node.
func TestFenceAfter(t *testing.T) { // not parallel: a cluster of its own, which must not be starved
	i, err := instance.Start(t.Context(), "e2e-fence", "--node-monitor-grace-period", nodeGrace.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := i.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cluster{i}
	c.fenceAfter(t, 40*time.Second)
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g := &lossy{guest: c.create(t, newVM(ns, "fenced", v1.RunStrategyAlways, withClaim("data")))}
	g.waitLogin(t)
	g.count(t)

	before, pod := g.lose(t, "cut")
	cut := time.Now()
	running := qemu(t, pod)
	if running == 0 {
		t.Fatal("the guest does not run on the node that is cut off")
	}
	ended := time.Duration(0)
	eventually(t, 4*time.Minute, "the VM starts on the other node", func() string {
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

// fenceAfter gives virt-controller the flag of that name.
func (c *cluster) fenceAfter(t *testing.T, after time.Duration) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--fence-after=%s"}]`, after)
	deployments := c.Kube.AppsV1().Deployments(names.Namespace)
	if _, err := deployments.Patch(t.Context(), names.VirtController, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
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
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas && s.AvailableReplicas == *d.Spec.Replicas
}
