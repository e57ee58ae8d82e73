package vmicontroller

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// modelVersion ends the name of a version of a CPU model; nodes are labelled with the model.
var modelVersion = regexp.MustCompile(`-v[0-9]+$`)

// amd64 is the architecture whose nodes are labelled with what their CPUs have.
const amd64 = "amd64"

// processorSelector returns the labels of nodes that have the CPU that the guest needs. Guests that are emulated can
// have any model anywhere, but only the features that QEMU emulates.
func processorSelector(vmi *v1.VirtualMachineInstance, facts Facts) map[string]string {
	selector := map[string]string{}
	if architecture(vmi, facts) != amd64 {
		return selector
	}
	if frequency := GivenTSC(vmi); frequency > 0 {
		selector[names.LabelTSCScheduling+strconv.FormatInt(frequency, 10)] = "true"
	}
	if facts.hardware() && facts.Config.Allowed.Gates[surface.GateHypervStrictCheck] {
		maps.Copy(selector, hypervSelector(vmi.Spec.Domain.Features))
	}
	cpu := vmi.Spec.Domain.CPU
	if cpu == nil {
		return selector
	}
	if model := namedModel(cpu); model != "" && facts.hardware() {
		selector[v1.CPUModelLabel+model] = "true"
	}
	for _, feature := range cpu.Features {
		if feature.Policy == "" || feature.Policy == "require" {
			selector[v1.CPUFeatureLabel+feature.Name] = "true"
		}
	}
	return selector
}

// hypervSelector returns the labels of nodes whose KVM has the features of Hyper-V that the guest needs; those that are
// QEMU's own have none.
func hypervSelector(features *v1.Features) map[string]string {
	if features == nil || features.Hyperv == nil {
		return nil
	}
	h := features.Hyperv
	selector := map[string]string{}
	for name, needed := range map[string]bool{
		"vpindex": on(h.VPIndex), "runtime": on(h.Runtime), "reset": on(h.Reset), "synic": on(h.SyNIC),
		"frequencies":     on(h.Frequencies),
		"reenlightenment": on(h.Reenlightenment), "ipi": on(h.IPI), "synictimer": h.SyNICTimer != nil &&
			on(&h.SyNICTimer.FeatureState),
		"tlbflush": h.TLBFlush != nil && on(&h.TLBFlush.FeatureState),
	} {
		if needed {
			selector[v1.HypervLabel+name] = "true"
		}
	}
	if on(h.EVMCS) {
		selector[v1.CPUModelVendorLabel+"Intel"] = "true"
	}
	return selector
}

// hardware reports whether the guest is not emulated.
func (f Facts) hardware() bool { return f.KVM && !f.Config.UseEmulation }

func architecture(vmi *v1.VirtualMachineInstance, facts Facts) string {
	if vmi.Spec.Architecture != "" {
		return vmi.Spec.Architecture
	}
	return facts.Config.Architecture
}

// namedModel returns the CPU model that the guest is to have, "" for one that follows the node.
func namedModel(cpu *v1.CPU) string {
	if cpu.Model == "" || cpu.Model == v1.CPUModeHostModel || cpu.Model == v1.CPUModeHostPassthrough {
		return ""
	}
	return modelVersion.ReplaceAllString(cpu.Model, "")
}

// FollowsNode reports whether the guest has the CPU model of the node that it starts on.
func FollowsNode(vmi *v1.VirtualMachineInstance) bool {
	cpu := vmi.Spec.Domain.CPU
	return cpu == nil || cpu.Model == "" || cpu.Model == v1.CPUModeHostModel
}

// HostModelSelector returns the labels of nodes that a guest with host-model can move to, which is not emulated: nodes
// that can show the CPU of the node on which it was started. It is in the guest's pod once the guest has moved, and is
// read from its node before. Nil means any node: the guest's CPU does not follow the node, or the node does not report
// its own.
func HostModelSelector(vmi *v1.VirtualMachineInstance, source *corev1.Pod, node *corev1.Node) map[string]string {
	if !FollowsNode(vmi) {
		return nil
	}
	out := map[string]string{}
	moved := false
	for key, value := range source.Spec.NodeSelector {
		model := strings.HasPrefix(key, v1.SupportedHostModelMigrationCPU)
		if model || strings.HasPrefix(key, v1.CPUFeatureLabel) {
			out[key] = value
		}
		moved = moved || model
	}
	if moved {
		return out
	}
	model := ""
	for key, value := range node.Labels {
		if name, ok := strings.CutPrefix(key, v1.HostModelCPULabel); ok {
			model = name
		}
		if name, ok := strings.CutPrefix(key, v1.HostModelRequiredFeaturesLabel); ok {
			out[v1.CPUFeatureLabel+name] = value
		}
	}
	if model == "" {
		return nil
	}
	out[v1.SupportedHostModelMigrationCPU+model] = "true"
	return out
}

func on(s *v1.FeatureState) bool { return s != nil && (s.Enabled == nil || *s.Enabled) }
