//go:build lab

package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// TestMachine: the lab is what it is to be, else the other tests prove nothing.
func TestMachine(t *testing.T) {
	for command, want := range map[string]string{
		"ps -o comm= 1":                                  "systemd",
		"stat -fc %T /sys/fs/cgroup":                     "cgroup2fs",
		"cat /sys/module/kvm_amd/parameters/npt":         "Y",
		"cat /sys/devices/system/node/online":            "0-1",
		"cat /proc/sys/vm/nr_hugepages":                  "64",
		"test -c /dev/kvm && echo yes":                   "yes",
		"systemctl is-active kvm-held":                   "active",
		"test -d /sys/kernel/iommu_groups/0 && echo yes": "yes",
		"cat /sys/class/net/eth1/device/sriov_totalvfs":  "7",
		"test -b /dev/nvme0n1 && echo yes":               "yes",
		"systemctl --failed --quiet --no-legend":         "",
	} {
		if got := inside(t, "%s", command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// TestNodesOfferKVM: virt-handler has found /dev/kvm, and says so by a resource and by labels of the CPU.
func TestNodesOfferKVM(t *testing.T) {
	eventually(t, time.Minute, "both nodes offer KVM", func() string {
		for _, node := range nodes(t) {
			if kvm := node.Status.Allocatable[names.ResourceKVM]; kvm.IsZero() {
				return node.Name + " has no " + names.ResourceKVM
			}
			if node.Labels[v1.CPUModelVendorLabel+"AMD"] != "true" {
				return node.Name + " has no label of its CPU's maker"
			}
			if !slices.Contains(labelled(&node, v1.CPUFeatureLabel), "svm") {
				return node.Name + " has no label of feature svm"
			}
		}
		return ""
	})
}

// TestDelegation: systemd's hierarchy is shared as the kernel wants it: a launcher's group has the controllers, and a
// bound on its memory that is the pod's.
func TestDelegation(t *testing.T) {
	p := qemu(t, "demo")
	controllers := strings.Fields(inside(t, "cat %s/cgroup.controllers", p.group))
	for _, want := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(controllers, want) {
			t.Errorf("controllers of %s: %q, without %s", p.group, controllers, want)
		}
	}
	for file, not := range map[string]string{
		"memory.current": "0", "cgroup.freeze": "1", "cpu.weight": "0", "cgroup.type": "threaded",
	} {
		if got := inside(t, "cat %s/%s", p.group, file); got == "" || got == not {
			t.Errorf("%s: %q", file, got)
		}
	}
	if inside(t, "systemctl show --property=ControlGroup --value ssh.service") == "" {
		t.Error("systemd has lost its own groups")
	}
}
