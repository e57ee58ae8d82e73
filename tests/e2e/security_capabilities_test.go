//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Each node finds out by itself what QEMU can do, from the image and before there is any guest; and what it found is
// what its launchers have and believe. Nothing of it comes from a launcher. Not parallel: it restarts a virt-handler.
func TestCapabilitiesAreProbed(t *testing.T) {
	c := theCluster
	handlers := c.componentPods(t, names.VirtHandler)
	found := func(pod corev1.Pod) map[string][]byte {
		t.Helper()
		var files map[string][]byte
		eventually(t, 2*time.Minute, "the node "+pod.Spec.NodeName+" knows what QEMU can do", func() string {
			if files = readFiles(t, pod, "virt-server", "/var/lib/virtkit/probed/*/*/*.xml"); len(files) == 0 {
				return "not yet"
			}
			return ""
		})
		return files
	}
	for _, pod := range handlers {
		found(pod)
	}

	// A node that knows nothing, whose first guest is yet to come.
	fresh := handlers[0]
	restarts := fresh.Status.ContainerStatuses[0].RestartCount
	for _, dir := range slices.Collect(maps.Keys(readFiles(t, fresh, "virt-server", "/var/lib/virtkit/probed/*"))) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, string(fresh.UID), "virt-server")
	eventually(t, 2*time.Minute, "virt-handler is back", func() string {
		for _, pod := range c.componentPods(t, names.VirtHandler) {
			status := pod.Status.ContainerStatuses[0]
			if pod.UID == fresh.UID && (status.RestartCount == restarts || !status.Ready) {
				return "not yet"
			}
		}
		return ""
	})
	found(fresh)

	// libvirt does not mind a comment, and would write a file without it if it did not believe ours.
	const mark = "<!-- of the node -->\n"
	nodes := map[string]map[string][]byte{}
	for _, pod := range handlers {
		nodes[pod.Spec.NodeName] = map[string][]byte{}
		for name, data := range found(pod) {
			if filepath.Base(name) == names.DomainCapabilities {
				continue // is for the node alone
			}
			marked := append(slices.Clone(data), mark...)
			nodes[pod.Spec.NodeName][filepath.Base(name)] = marked
			if err := os.WriteFile(name, marked, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Error(err)
				}
			})
		}
	}
	g := c.create(t, newVM(c.namespace(t, "restricted"), "warm", v1.RunStrategyAlways))
	g.waitPhase(t, bootTime, v1.Running)
	pod := g.pod(t)
	got := readFiles(t, pod, "virt-launcher", filepath.Join(names.RunDir, names.CapabilityCacheDir, "*"))
	want := nodes[pod.Spec.NodeName]
	if len(got) != len(want) {
		t.Errorf("the launcher has %v, its node %v", slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
	}
	for name, data := range got {
		if !bytes.Equal(data, want[filepath.Base(name)]) {
			t.Errorf("%s is not the node's, which has %d bytes", name, len(want[filepath.Base(name)]))
		}
	}
}

// readFiles reads the files of a pod that match a pattern, as a process of it sees them, by the paths at which this
// machine reaches them. Directories have no content.
func readFiles(t *testing.T, pod corev1.Pod, command, pattern string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, p := range processes(t, string(pod.UID)) {
		if p.Command != command {
			continue
		}
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s", p.PID, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			info, err := os.Stat(name)
			if err == nil && info.Mode().IsRegular() {
				files[name], err = os.ReadFile(name)
			} else if err == nil {
				files[name] = nil
			}
			if err != nil && !os.IsNotExist(err) { // temporary ones come and go
				t.Fatal(err)
			}
		}
		return files
	}
	return files
}
