package vmicontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// agentSlack is the time, seconds, that the kubelet gives a probe in addition to the guest agent's timeout: starting
// the probe in the container takes that long.
const agentSlack = 1

// probe returns a probe of a VMI as a probe of its pod's container. The kubelet itself makes network probes, at the
// pod's address, which leads to the guest; for probes that the guest agent answers, it asks the launcher.
func probe(p *v1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: p.InitialDelaySeconds,
		TimeoutSeconds:      max(1, p.TimeoutSeconds),
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
	ask := []string{launcherBinary, "probe", fmt.Sprintf("--timeout=%ds", out.TimeoutSeconds)}
	switch {
	case p.HTTPGet != nil:
		out.HTTPGet = p.HTTPGet.DeepCopy()
	case p.TCPSocket != nil:
		out.TCPSocket = p.TCPSocket.DeepCopy()
	case p.Exec != nil:
		out.Exec = &corev1.ExecAction{Command: append(append(ask, "--"), p.Exec.Command...)}
		out.TimeoutSeconds += agentSlack
	case p.GuestAgentPing != nil:
		out.Exec = &corev1.ExecAction{Command: ask}
		out.TimeoutSeconds += agentSlack
	default:
		return nil
	}
	return out
}

// incomingWait is the time, seconds, that one call to a launcher waits for its guest to arrive.
const incomingWait = 600

// TargetProbe returns the probe of a launcher that waits for a guest from another node: until the guest is there, the
// VMI's own probes would fail, and end the launcher. It is answered when the guest is there. Nil when the VMI has none.
func TargetProbe(vmi *v1.VirtualMachineInstance) *corev1.Probe {
	if vmi.Spec.LivenessProbe == nil && vmi.Spec.ReadinessProbe == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{launcherBinary, "probe", "--arrived", fmt.Sprintf("--timeout=%ds", incomingWait)},
		}},
		TimeoutSeconds: incomingWait + agentSlack, PeriodSeconds: 1,
		FailureThreshold: 7 * 24 * 60 * 60 / incomingWait, // a week: longer than any migration
	}
}

// ContainerPorts returns the ports that the VMI's interfaces list, by whose names probes and Services may call them.
func ContainerPorts(vmi *v1.VirtualMachineInstance) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		for _, port := range nic.Ports {
			protocol := corev1.Protocol(port.Protocol)
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			out = append(out, corev1.ContainerPort{Name: port.Name, Protocol: protocol, ContainerPort: port.Port})
		}
	}
	return out
}
