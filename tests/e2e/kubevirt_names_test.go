//go:build e2e

package e2e

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A VM's name may be longer than a label's value and a host name, which have as much of it as they may.
func TestLongNames(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	name := "long-" + strings.Repeat("n", 70)
	g := c.create(t, newVM(ns, name, v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.ObjectMeta.Labels = nil // the test's own would have the name
	}))
	g.waitLogin(t)
	pod := g.pod(t)
	if pod.Annotations[v1.DomainAnnotation] != name || pod.Spec.Hostname != name[:63] {
		t.Errorf("the pod is that of %q, its host name %q", pod.Annotations[v1.DomainAnnotation], pod.Spec.Hostname)
	}
	for _, label := range []string{v1.DeprecatedVirtualMachineNameLabel, v1.VirtualMachineInstanceIDLabel} {
		if value := pod.Labels[label]; len(value) > 63 || !strings.HasPrefix(name, value[:min(len(value), 40)]) ||
			value == "" {
			t.Errorf("label %s is %q", label, value)
		}
	}
}
