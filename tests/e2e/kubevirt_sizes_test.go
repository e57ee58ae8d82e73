//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// What no node has is not refused: the VM waits for a node that has it.
func TestBeyondAnyNode(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for name, change := range map[string]func(*v1.DomainSpec){
		"cpus":   func(d *v1.DomainSpec) { d.CPU = &v1.CPU{Sockets: 65536} },
		"memory": func(d *v1.DomainSpec) { d.Memory = &v1.Memory{Guest: ptr(resource.MustParse("1Ei"))} },
		"pages": func(d *v1.DomainSpec) {
			d.Memory = &v1.Memory{Guest: ptr(resource.MustParse("96Mi")), Hugepages: &v1.Hugepages{PageSize: "3Mi"}}
		},
	} {
		g := c.create(t, newVM(ns, name, v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
			change(&vm.Spec.Template.Spec.Domain)
		}))
		g.waitStatus(t, 60*time.Second, v1.VirtualMachineStatusUnschedulable)
	}
}

// A guest that may have more than 255 vCPUs boots: libvirt gives it the IOMMU that its interrupts need.
func TestManyVCPUs(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "many", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Sockets: 1, MaxSockets: 300}
		// Its kernel takes memory for each vCPU that may come.
		vm.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: ptr(resource.MustParse("1Gi"))}
	}))
	g.waitLogin(t)
	if out, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "exec", g.name, "--", "cat",
		"/sys/devices/system/cpu/possible"); err != nil || strings.TrimSpace(out) != "0-299" {
		t.Errorf("the guest may have CPUs %q: %v %s", out, err, stderr)
	}
}
