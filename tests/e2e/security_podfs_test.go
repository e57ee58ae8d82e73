//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// A link in the place of a launcher's /dev/net/tun does not open a file of the node to everybody when virt-handler
// prepares the pod again. The test puts it there as root of the machine, as a process with the rights of a container's
// root could.
func TestLinkAtTun(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "privileged")
	g := c.create(t, newVM(ns, "links", v1.RunStrategyAlways))
	g.waitPhase(t, bootTime, v1.Running)
	pod := g.pod(t)
	launchers := named(processes(t, string(pod.UID)), processLauncher)
	if len(launchers) == 0 {
		t.Fatal("the launcher has no process")
	}
	// virt-handler shares its node's processes, and so reaches the node's files there; /srv is the machine's own.
	dir, err := os.MkdirTemp("/srv", "virtkit-e2e-") //nolint:usetesting // t.TempDir is in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "shadow")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tun := fmt.Sprintf("/proc/%d/root/dev/net/tun", launchers[0])
	if err := os.Remove(tun); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/1/root"+file, tun); err != nil {
		t.Fatal(err)
	}
	killed := map[types.UID]bool{}
	for _, handler := range c.componentPods(t, names.VirtHandler) {
		if handler.Spec.NodeName != pod.Spec.NodeName {
			continue
		}
		killed[handler.UID] = true
		if err := c.Client.Delete(t.Context(), &handler, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	c.waitComponents(t, ns, killed)
	eventually(t, time.Minute, "virt-handler refuses the pod", func() string {
		for _, condition := range g.vmi(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineInstanceSynchronized && condition.Status == "False" {
				return ""
			}
		}
		info, err := os.Stat(file)
		if err != nil {
			return err.Error()
		}
		if info.Mode().Perm() != 0o600 {
			t.Fatalf("the file of the node has mode %o", info.Mode().Perm())
		}
		return "it has not tried yet"
	})
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the node: %v, %v", info, err)
	}
}
