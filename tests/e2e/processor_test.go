//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// withProcessor gives a VM a CPU that is made of a model, a feature that it does not have, and one less.
func withProcessor(cpu *v1.CPU) *v1.CPU {
	cpu.Model = "Westmere"
	cpu.Features = []v1.CPUFeature{{Name: "sha-ni", Policy: "require"}, {Name: "aes", Policy: "disable"}}
	return cpu
}

// hasProcessor checks that a guest has that CPU.
func (g *guest) hasProcessor(t *testing.T) {
	t.Helper()
	text := g.in(t, "grep", "-m2", "-E", "^(model name|flags)", "/proc/cpuinfo")
	flags := strings.Fields(text)
	if !strings.Contains(text, "Westmere") || !slices.Contains(flags, "sha_ni") || slices.Contains(flags, "aes") {
		t.Errorf("the guest's CPU: %s", text)
	}
}

// A guest that requires what no node's CPU has waits, and is told which label is missing.
func TestMissingFeature(t *testing.T) {
	t.Parallel()
	c := theCluster
	nodes := &corev1.NodeList{}
	if err := c.Client.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	// Without hardware virtualization, nodes have what QEMU emulates: no invariant counter, and no model newer than
	// Westmere.
	for _, node := range nodes.Items {
		if node.Status.Allocatable.Name(names.ResourceKVM, resource.DecimalSI).Sign() > 0 {
			continue
		}
		for label, want := range map[string]string{
			v1.CPUFeatureLabel + "sha-ni": "true", v1.CPUModelLabel + "Westmere": "true",
			v1.SupportedHostModelMigrationCPU + "Westmere": "true",
			v1.CPUModelVendorLabel + "AMD":                 "true", v1.CPUFeatureLabel + "invtsc": "",
			v1.CPUModelLabel + "EPYC": "", v1.CPUModelLabel + "Conroe": "",
		} {
			if got := node.Labels[label]; got != want {
				t.Errorf("node %s: label %s=%q, want %q", node.Name, label, got, want)
			}
		}
	}
	vm := newVM(c.namespace(t, "restricted"), "demanding", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Features: []v1.CPUFeature{{Name: "fpu"}, {Name: "nobody-has-this"}}}
	})
	g := c.create(t, vm)
	g.waitStatus(t, 60*time.Second, v1.VirtualMachineStatusUnschedulable)
	eventually(t, 30*time.Second, "why says what is missing", func() string {
		// its exit code says that something is wrong
		why, stderr, _ := g.Virtctl(t.Context(), nil, "-n", g.ns, "why", g.name)
		if strings.Contains(why, "no node has the label "+v1.CPUFeatureLabel+"nobody-has-this=true") &&
			!strings.Contains(why, "/fpu") {
			return ""
		}
		return instead(why + stderr)
	})
	if err := c.Client.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	g.waitGone(t, 30*time.Second)
}
