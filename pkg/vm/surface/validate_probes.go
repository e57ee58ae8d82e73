package surface

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// The values of a probe that does not say; Kubernetes', in seconds and times.
const (
	probeTimeout   = 1
	probePeriod    = 10
	probeSuccesses = 1
	probeFailures  = 3
)

// maxProbeNumber bounds the seconds and times of a probe, which overflow nothing that is made of them.
const maxProbeNumber = 1 << 30

// Limits of a command that the agent is to run in a guest: words, and bytes of all of them. Written down for the agent
// it is no larger than its channel carries.
const (
	MaxCommandWords = 1024
	MaxCommandBytes = 48 << 10
)

func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	for _, number := range []struct {
		field *int32
		value int32
	}{
		{&p.TimeoutSeconds, probeTimeout},
		{&p.PeriodSeconds, probePeriod},
		{&p.SuccessThreshold, probeSuccesses},
		{&p.FailureThreshold, probeFailures},
	} {
		if *number.field == 0 {
			*number.field = number.value
		}
	}
}

// validateProbes checks the probes: one question each, which the guest can be asked.
func validateProbes(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	liveness := root.Child("livenessProbe")
	errs := validateProbe(spec.ReadinessProbe, spec, root.Child("readinessProbe"))
	errs = append(errs, validateProbe(spec.LivenessProbe, spec, liveness)...)
	if spec.LivenessProbe == nil {
		return errs
	}
	if n := spec.LivenessProbe.SuccessThreshold; n > 1 {
		errs = append(errs, field.Invalid(liveness.Child("successThreshold"), n, "must be 1 for a liveness probe"))
	}
	if spec.StartStrategy != nil && *spec.StartStrategy == v1.StartStrategyPaused {
		errs = append(errs, field.Forbidden(liveness,
			"would end the guest that startStrategy Paused keeps waiting; leave one of them out"))
	}
	return errs
}

func validateProbe(p *v1.Probe, spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	kinds := 0
	if p.HTTPGet != nil {
		kinds++
		here := at.Child("httpGet")
		errs = append(errs, validateProbePort(p.HTTPGet.Port, spec, here)...)
		for i, header := range p.HTTPGet.HTTPHeaders {
			if problems := validation.IsHTTPHeaderName(header.Name); len(problems) > 0 {
				errs = append(errs, field.Invalid(here.Child("httpHeaders").Index(i).
					Child("name"), header.Name, strings.Join(problems, ", ")))
			}
		}
	}
	if p.TCPSocket != nil {
		kinds++
		errs = append(errs, validateProbePort(p.TCPSocket.Port, spec, at.Child("tcpSocket"))...)
	}
	if p.Exec != nil {
		kinds++
		errs = append(errs, validateProbeCommand(p.Exec.Command, at.Child("exec", "command"))...)
	}
	if p.GuestAgentPing != nil {
		kinds++
	}
	switch {
	case kinds == 0:
		errs = append(errs, field.Required(at, "asks nothing; use httpGet, tcpSocket, exec or guestAgentPing"))
	case kinds > 1:
		errs = append(errs,
			field.Forbidden(at, "is more than one of httpGet, tcpSocket, exec and guestAgentPing; keep one"))
	}
	for _, number := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if number.value < 0 || number.value > maxProbeNumber {
			errs = append(errs, field.Invalid(at.Child(number.name), number.value,
				fmt.Sprintf("must be between 0 and %d", maxProbeNumber)))
		}
	}
	return errs
}

func validateProbeCommand(command []string, at *field.Path) field.ErrorList {
	size := 0
	for _, word := range command {
		size += len(word)
	}
	switch {
	case len(command) == 0 || command[0] == "":
		return field.ErrorList{field.Required(at, "is not set; name a program of the guest's and its arguments")}
	case len(command) > MaxCommandWords:
		return field.ErrorList{field.TooMany(at, len(command), MaxCommandWords)}
	case size > MaxCommandBytes:
		return field.ErrorList{field.TooLong(at, "", MaxCommandBytes)}
	}
	return nil
}

// validateProbePort checks that what comes for the port at the pod's address reaches the guest.
func validateProbePort(port intstr.IntOrString, spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	nic := podInterface(spec)
	if nic == nil {
		return field.ErrorList{field.Forbidden(at, "needs an interface on the pod network, by which the guest is "+
			"asked; add one, or use exec or guestAgentPing")}
	}
	where := at.Child("port")
	if port.Type == intstr.String {
		for _, p := range nic.Ports {
			if p.Name != "" && p.Name == port.StrVal && isTCP(p) {
				return nil
			}
		}
		return field.ErrorList{field.Invalid(where, port.StrVal, fmt.Sprintf(
			"%q is not the name of a TCP port of interface %s; give the number, or list it in the interface's ports",
			port.StrVal, nic.Name))}
	}
	if problems := validation.IsValidPortNum(port.IntValue()); len(problems) > 0 {
		return field.ErrorList{field.Invalid(where, port.IntValue(), "must be between 1 and 65535")}
	}
	if len(nic.Ports) == 0 || otherBinding(nic) != "" {
		return nil
	}
	for _, p := range nic.Ports {
		if p.Port == port.IntVal && isTCP(p) {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(where, port.IntValue(), fmt.Sprintf(
		"does not reach the guest: interface %s lists ports and %d is not among them; add it there", nic.Name,
		port.IntValue()))}
}

func isTCP(p v1.Port) bool { return p.Protocol == "" || p.Protocol == string(corev1.ProtocolTCP) }

// podInterface returns the guest's interface on the network of the pod's address; nil when there is none.
func podInterface(spec *v1.VirtualMachineInstanceSpec) *v1.Interface {
	for _, network := range spec.Networks {
		if network.Pod == nil && (network.Multus == nil || !network.Multus.Default) {
			continue
		}
		for i := range spec.Domain.Devices.Interfaces {
			if spec.Domain.Devices.Interfaces[i].Name == network.Name {
				return &spec.Domain.Devices.Interfaces[i]
			}
		}
	}
	return nil
}
