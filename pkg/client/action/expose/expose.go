// Package expose makes the Service that leads to the guests of a virtual machine, an instance or a replica set. It is
// pure: `virtctl expose` looks the object up and creates the Service.
package expose

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Options describe a Service. Names of types, protocols and families are taken in any case.
type Options struct {
	// Name is the Service's.
	Name, Namespace string
	// Port is what the Service serves; 0 takes the ports that the interface on the pod's network lists.
	Port int32
	// TargetPort is the guest's, a number or a name; Port when it is empty.
	TargetPort string
	PortName   string
	// NodePort is the port on each node; 0 leaves it to the cluster.
	NodePort int32
	// Protocol is TCP, also when empty, or UDP.
	Protocol string
	// Type is ClusterIP, also when empty, NodePort or LoadBalancer.
	Type                                  string
	ClusterIP, ExternalIP, LoadBalancerIP string
	// IPFamily is IPv4, IPv6 or both, separated by a comma; IPFamilyPolicy is SingleStack, PreferDualStack or
	// RequireDualStack. Empty leaves them to the cluster.
	IPFamily, IPFamilyPolicy string
}

// FieldError is an option that no Service can be made of.
type FieldError struct {
	// Field is the option: "target-port".
	Field, Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// one finds what text is one of, in any case.
func one(field, text string, of ...string) (string, error) {
	for _, value := range of {
		if strings.EqualFold(value, text) {
			return value, nil
		}
	}
	return "", invalid(field, "%q is not one of %s", text, strings.Join(of, ", "))
}

// ErrNoPorts says that neither the options nor the object name a port.
var ErrNoPorts = errors.New(
	"there is no port: give one with --port, or list some in the interface on the pod's network",
)

// Types, Families and Policies are the values of the options.
func Types() []string {
	return []string{
		string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeNodePort),
		string(corev1.ServiceTypeLoadBalancer),
	}
}

// Families returns the values of Options.IPFamily.
func Families() []string { return []string{"IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"} }

// Policies returns the values of Options.IPFamilyPolicy.
func Policies() []string {
	return []string{
		string(corev1.IPFamilyPolicySingleStack), string(corev1.IPFamilyPolicyPreferDualStack),
		string(corev1.IPFamilyPolicyRequireDualStack),
	}
}

// Selector finds the pod of an instance by its name.
func Selector(name string) map[string]string {
	return map[string]string{v1.VirtualMachineInstanceIDLabel: names.LabelValue(name)}
}

// ReplicaSetSelector finds the pods of a replica set's instances, if its selector is one that a Service can have.
func ReplicaSetSelector(set *v1.VirtualMachineInstanceReplicaSet) (map[string]string, error) {
	switch s := set.Spec.Selector; {
	case s == nil || len(s.MatchLabels) == 0:
		return nil, errors.New("it has no labels to select by")
	case len(s.MatchExpressions) > 0:
		return nil, errors.New("its selector has matchExpressions, which a Service cannot have")
	default:
		return s.MatchLabels, nil
	}
}

// Service makes the Service. Errors are FieldErrors, and ErrNoPorts.
func Service(o Options, selector map[string]string, spec *v1.VirtualMachineInstanceSpec) (*corev1.Service, error) {
	if errs := validation.IsDNS1035Label(o.Name); len(errs) > 0 {
		return nil, invalid("name", "%q is no name of a Service: %s", o.Name, errs[0])
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace},
		Spec:       corev1.ServiceSpec{Selector: selector, ClusterIP: o.ClusterIP, LoadBalancerIP: o.LoadBalancerIP},
	}
	kind, err := one("type", or(o.Type, string(corev1.ServiceTypeClusterIP)), Types()...)
	if err != nil {
		return nil, err
	}
	service.Spec.Type = corev1.ServiceType(kind)
	if o.NodePort != 0 && service.Spec.Type == corev1.ServiceTypeClusterIP {
		return nil, invalid("node-port", "goes with --type NodePort or LoadBalancer only")
	}
	if service.Spec.Ports, err = ports(o, spec); err != nil {
		return nil, err
	}
	if o.ExternalIP != "" {
		service.Spec.ExternalIPs = []string{o.ExternalIP}
	}
	return service, families(o, &service.Spec)
}

func families(o Options, spec *corev1.ServiceSpec) error {
	if o.IPFamily != "" {
		found, err := one("ip-family", o.IPFamily, Families()...)
		if err != nil {
			return err
		}
		for family := range strings.SplitSeq(found, ",") {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(family))
		}
	}
	policy := o.IPFamilyPolicy
	if policy == "" && len(spec.IPFamilies) > 1 {
		policy = string(corev1.IPFamilyPolicyPreferDualStack)
	}
	if policy == "" {
		return nil
	}
	found, err := one("ip-family-policy", policy, Policies()...)
	spec.IPFamilyPolicy = (*corev1.IPFamilyPolicy)(&found)
	return err
}

func ports(o Options, spec *v1.VirtualMachineInstanceSpec) ([]corev1.ServicePort, error) {
	protocol, err := one("protocol", or(o.Protocol, "TCP"), "TCP", "UDP")
	if err != nil {
		return nil, err
	}
	if o.Port == 0 {
		if o.TargetPort != "" || o.NodePort != 0 || o.PortName != "" {
			return nil, invalid("port", "is missing; target-port, node-port and port-name say more about it")
		}
		listed := listedPorts(spec)
		if len(listed) == 0 {
			return nil, ErrNoPorts
		}
		return listed, nil
	}
	for _, port := range []struct {
		field string
		n     int32
	}{{"port", o.Port}, {"node-port", o.NodePort}} {
		if port.n < 0 || port.n > 65535 {
			return nil, invalid(port.field, "%d is not a port from 1 to 65535", port.n)
		}
	}
	port := corev1.ServicePort{
		Name: o.PortName, Protocol: corev1.Protocol(protocol), Port: o.Port,
		NodePort: o.NodePort,
	}
	if o.TargetPort != "" {
		port.TargetPort = intstr.Parse(o.TargetPort)
		problems := validation.IsValidPortNum(port.TargetPort.IntValue())
		if port.TargetPort.Type == intstr.String {
			problems = validation.IsValidPortName(o.TargetPort)
		}
		if len(problems) > 0 {
			return nil, invalid("target-port", "%q is no port: %s", o.TargetPort, problems[0])
		}
	}
	return []corev1.ServicePort{port}, nil
}

// listedPorts returns the ports that the spec lists for the interface on the pod's network.
func listedPorts(spec *v1.VirtualMachineInstanceSpec) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, network := range spec.Networks {
		if network.Pod == nil {
			continue
		}
		for _, nic := range spec.Domain.Devices.Interfaces {
			if nic.Name != network.Name {
				continue
			}
			for i, port := range nic.Ports {
				out = append(out, corev1.ServicePort{
					Name: fmt.Sprintf("port-%d", i+1), Protocol: corev1.Protocol(or(port.Protocol, "TCP")),
					Port: port.Port,
				})
			}
		}
		break
	}
	return out
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
