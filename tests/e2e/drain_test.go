//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// withEviction gives a VM a strategy. A bridged one has the pod's address and cannot move.
func withEviction(strategy v1.EvictionStrategy, bridged bool) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.EvictionStrategy = &strategy
		spec.TerminationGracePeriodSeconds = ptr(int64(5))
		if bridged {
			spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
				Bridge: &v1.InterfaceBridge{},
			}
		}
	}
}

func (c *cluster) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	if err := c.setSchedulable(t.Context(), node, !on); err != nil {
		t.Fatalf("cordon node %s: %v", node, err)
	}
}

func (c *cluster) setSchedulable(ctx context.Context, node string, on bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, !on)
	_, err := c.Kube.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// oneNode has the scheduler choose one node only, until the test is over, and gives both.
func (c *cluster) oneNode(t *testing.T) (here, there string) {
	t.Helper()
	nodes, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) < 2 {
		t.Fatalf("nodes: %v, %v", nodes.Items, err)
	}
	here, there = nodes.Items[0].Name, nodes.Items[1].Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for i := range nodes.Items {
			if err := c.setSchedulable(ctx, nodes.Items[i].Name, true); err != nil {
				t.Errorf("uncordon: %v", err)
			}
		}
	})
	c.cordon(t, there, true)
	return here, there
}

// evict asks once for the eviction of the guest's pod.
func (g *guest) evict(t *testing.T, pod string, dryRun ...string) error {
	t.Helper()
	return g.Kube.PolicyV1().Evictions(g.ns).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: g.ns, Name: pod},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	})
}

// refused asks for the eviction of the guest's pod until the webhook answers, with all of texts. The API server waits
// ten seconds for the webhook, on a starved machine in vain; the pod's disruption budget refuses then, with the same
// code and a text of its own.
func (g *guest) refused(t *testing.T, pod string, dryRun []string, texts ...string) {
	t.Helper()
	eventually(t, time.Minute, "the eviction of pod "+pod+" is refused by the webhook", func() string {
		err := g.evict(t, pod, dryRun...)
		if !apierrors.IsTooManyRequests(err) {
			t.Fatalf("the eviction of pod %s: %v", pod, err)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				return err.Error()
			}
		}
		return ""
	})
}

// drain evicts a pod as kubectl drain does: again and again while it is told to wait, until the pod has gone.
func (g *guest) drain(t *testing.T, pod string) {
	t.Helper()
	eventually(t, 2*time.Minute, "the node is drained", func() string { return g.drained(t, pod) })
}

// drained asks once for the eviction of a pod, and returns "" when it has gone.
func (g *guest) drained(t *testing.T, pod string) string {
	t.Helper()
	err := g.evict(t, pod)
	for _, p := range g.pods(t) {
		if p.Name == pod && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Sprintf("%s is there; the eviction: %v\n", pod, err)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
		return fmt.Sprintf("%s: %v\n", pod, err)
	}
	return ""
}

func requested(vmi *v1.VirtualMachineInstance) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceEvictionRequested && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// A node is drained with a guest of each kind on it: each goes, stays or ends as its eviction strategy says.
func TestDrain(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	here, there := c.oneNode(t)
	guests := map[string]*guest{}
	for name, how := range map[string]func(*v1.VirtualMachine){
		"moves":  withEviction(v1.EvictionStrategyLiveMigrate, false),
		"stays":  withEviction(v1.EvictionStrategyLiveMigrate, true),
		"tries":  withEviction(v1.EvictionStrategyLiveMigrateIfPossible, true),
		"ends":   withEviction(v1.EvictionStrategyNone, false),
		"marked": withEviction(v1.EvictionStrategyExternal, true),
	} {
		guests[name] = c.create(t, newVM(ns, name, v1.RunStrategyRerunOnFailure, how))
	}
	withDisks := os.Getenv("VIRTKIT_E2E_STORAGE") != "hostpath" // else there is no storage of one node
	if withDisks {
		c.classClaim(t, ns, "home", "local-node", corev1.PersistentVolumeFilesystem, "64Mi")
		guests["settles"] = c.create(t, newVM(ns, "settles", v1.RunStrategyRerunOnFailure, withDataOn("home"),
			withEviction(v1.EvictionStrategyLiveMigrate, false)))
	}
	first, pods := map[string]types.UID{}, map[string]string{}
	for name, g := range guests {
		g.waitPhase(t, 90*time.Second, v1.Running)
		eventually(t, 20*time.Second, name+" is known to be able to move or not", func() string {
			vmi := g.vmi(t)
			if vmi.Status.NodeName != here {
				t.Fatalf("%s is on node %s", name, vmi.Status.NodeName)
			}
			for _, condition := range vmi.Status.Conditions {
				if condition.Type == v1.VirtualMachineInstanceIsMigratable {
					first[name], pods[name] = vmi.UID, g.pod(t).Name
					return ""
				}
			}
			return "not yet"
		})
	}
	eventually(t, 20*time.Second, "budgets keep the protected", func() string {
		budgets, err := c.Kube.PolicyV1().PodDisruptionBudgets(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(budgets.Items) != len(guests)-2 {
			return fmt.Sprintf("%d budgets, %v", len(budgets.Items), err)
		}
		return ""
	})
	c.cordon(t, there, false)
	c.cordon(t, here, true)

	// A dry run says the same and changes nothing.
	guests["moves"].refused(t, pods["moves"], []string{metav1.DryRunAll}, "Eviction triggered evacuation of VMI")
	if node := guests["moves"].vmi(t).Status.EvacuationNodeName; node != "" {
		t.Errorf("after a dry run the guest is to leave node %s", node)
	}

	// One that must not be shut down and cannot move keeps its node from being drained.
	guests["stays"].refused(t, pods["stays"], nil, "not live-migratable", "bridge")
	// Somebody else looks after this one.
	guests["marked"].refused(t, pods["marked"], nil, "Eviction triggered evacuation of VMI")
	eventually(t, 20*time.Second, "it is marked", func() string {
		if vmi := guests["marked"].vmi(t); vmi.Status.EvacuationNodeName != here || !requested(vmi) {
			return "not yet"
		}
		return ""
	})
	guests["marked"].refused(t, pods["marked"], nil, "Evacuation in progress")

	leaving := []string{"moves", "tries", "ends"}
	eventually(t, 3*time.Minute, "the node is drained", func() string { // of all at once, as kubectl does it
		said := ""
		leaving = slices.DeleteFunc(leaving, func(name string) bool {
			answer := guests[name].drained(t, pods[name])
			said += answer
			return answer == ""
		})
		return said
	})
	moved := guests["moves"].waitPhase(t, 20*time.Second, v1.Running)
	if moved.UID != first["moves"] || moved.Status.NodeName != there || moved.Status.EvacuationNodeName != "" ||
		requested(moved) {
		t.Errorf("the one that moves: %s, instance %s was %s, to leave %q", moved.Status.NodeName, moved.UID,
			first["moves"], moved.Status.EvacuationNodeName)
	}
	guests["moves"].onlyOn(t, there)
	for _, name := range []string{"tries", "ends"} {
		eventually(t, time.Minute, name+" runs again, elsewhere", func() string {
			vmi := guests[name].vmi(t)
			if vmi == nil || vmi.UID == first[name] || vmi.Status.Phase != v1.Running || vmi.Status.NodeName != there {
				return "not yet"
			}
			return ""
		})
	}
	staying := []string{"stays", "marked"}
	if withDisks {
		staying = append(staying, "settles")
	}
	for _, name := range staying {
		if vmi := guests[name].vmi(t); vmi.UID != first[name] || vmi.Status.Phase != v1.Running ||
			vmi.Status.NodeName != here {
			t.Errorf("%s: %s on %s", name, vmi.Status.Phase, vmi.Status.NodeName)
		}
	}

	// One that only its disk keeps leaves with it, and the one that cannot move does not.
	if withDisks {
		out, stderr, err := guests["settles"].Virtctl(t.Context(), nil, "evacuate", here, "--with-disks", "--yes",
			"--wait", "--timeout=3m")
		if err == nil || !strings.Contains(stderr, " guests of node "+here+" cannot leave it") {
			t.Errorf("the evacuation: %v\n%s%s", err, out, stderr)
		}
		guests["settles"].settled(t, "home-m1")
		guests["settles"].onlyOn(t, there)
	}

	// It is taken back.
	guests["marked"].virtctl(t, nil, "evacuate-cancel", "node", here)
	eventually(t, 20*time.Second, "it is not to leave any more", func() string {
		if vmi := guests["marked"].vmi(t); vmi.Status.EvacuationNodeName != "" || requested(vmi) {
			return "not yet"
		}
		return ""
	})
	eventually(t, 20*time.Second, "the budget keeps one pod again", func() string {
		budgets, err := c.Kube.PolicyV1().PodDisruptionBudgets(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range budgets.Items {
			if budgets.Items[i].OwnerReferences[0].UID == first["moves"] &&
				budgets.Items[i].Spec.MinAvailable.IntVal == 1 {
				return ""
			}
		}
		text, err := json.Marshal(budgets.Items)
		return fmt.Sprintf("%s %v", text, err)
	})
}
