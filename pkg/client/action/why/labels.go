package why

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// labelled says what a label that virtkit looks for on nodes is about, by its beginning, and what asks for it.
var labelled = []struct{ prefix, fix string }{
	{v1.CPUModelLabel, "spec.template.spec.domain.cpu.model of the VM; host-model fits every node"},
	{v1.CPUFeatureLabel, "spec.template.spec.domain.cpu.features of the VM: leave the feature out, or let its policy " +
		"be optional"},
	{v1.SupportedHostModelMigrationCPU, "the guest has the CPU of its node, which no other node can show; a named " +
		"model in spec.template.spec.domain.cpu.model can move further"},
	{v1.HypervLabel, "spec.template.spec.domain.features.hyperv of the VM"},
	{names.LabelTSCScheduling, "spec.template.spec.domain.cpu.features invtsc and " +
		"features.hyperv.reenlightenment of the VM, or minimumClusterTSCFrequency of the KubeVirt resource"},
	{v1.RealtimeLabel, "a node with kernel.sched_rt_runtime_us = -1, or leave out " +
		"spec.template.spec.domain.cpu.realtime"},
	{v1.SEVLabel, "a node whose kernel has kvm_amd with sev=1 (and sev_es=1), or leave out " +
		"spec.template.spec.domain.launchSecurity"},
	{v1.CPUManager, "a node whose kubelet has cpuManagerPolicy: static, or leave out " +
		"spec.template.spec.domain.cpu.dedicatedCpuPlacement"},
}

// missingLabels returns those labels of a pod's nodeSelector that no node for VMs has, sorted. What cannot be known
// counts as there.
func (e *explanation) missingLabels(pod *corev1.Pod) []string {
	if !e.readable("nodes") {
		return nil
	}
	var nodes []*corev1.Node
	for i := range e.Nodes {
		if life.TakesNewVMs(&e.Nodes[i]) {
			nodes = append(nodes, &e.Nodes[i])
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		value := pod.Spec.NodeSelector[key]
		if !slices.ContainsFunc(nodes,
			func(n *corev1.Node) bool { got, ok := n.Labels[key]; return ok && got == value }) {
			out = append(out, "the label "+key+"="+value)
		}
	}
	return out
}

// labelFixes returns what in the VM asks for the missing labels, as fixes.
func labelFixes(missing []string) []string {
	var out []string
	for _, l := range labelled {
		asked := slices.ContainsFunc(missing,
			func(text string) bool { return strings.HasPrefix(text, "the label "+l.prefix) })
		if asked {
			out = append(out, l.fix)
		}
	}
	return out
}
