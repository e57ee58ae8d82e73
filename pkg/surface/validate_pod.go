package surface

import (
	"fmt"
	"math"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validateScheduling checks what goes into the pod as it is. What the API server checks of a pod anyway
// (affinity in all its depth) is left to it and comes back as a FailedCreate event.
func validateScheduling(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		if err := ValidateGracePeriod(*grace, root.Child("terminationGracePeriodSeconds")); err != nil {
			errs = append(errs, err)
		}
	}
	for _, host := range []struct{ name, value string }{{"hostname", spec.Hostname}, {"subdomain", spec.Subdomain}} {
		if host.value == "" {
			continue
		}
		if problems := validation.IsDNS1123Label(host.value); len(problems) > 0 {
			errs = append(errs, field.Invalid(root.Child(host.name), host.value, fmt.Sprintf(
				"%q is not a DNS label: at most 63 lower-case letters, digits and -", host.value)))
		}
	}
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, root.Child("nodeSelector"))...)
	if spec.PriorityClassName != "" {
		errs = append(errs, validateObjectName(spec.PriorityClassName, root.Child("priorityClassName"))...)
	}
	if spec.SchedulerName != "" {
		errs = append(errs, validateObjectName(spec.SchedulerName, root.Child("schedulerName"))...)
	}
	for i, toleration := range spec.Tolerations {
		errs = append(errs, validateToleration(toleration, root.Child("tolerations").Index(i))...)
	}
	for i, spread := range spec.TopologySpreadConstraints {
		at := root.Child("topologySpreadConstraints").Index(i)
		if spread.MaxSkew < 1 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), spread.MaxSkew, "must be 1 or more"))
		}
		if spread.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "is not set; kubernetes.io/hostname spreads over nodes"))
		}
	}
	return append(errs, validateDNS(spec, root)...)
}

// maxGracePeriod, seconds, is 68 years. More would overflow a duration on its way to the guest, and what
// was meant as for ever would be at once.
const maxGracePeriod = math.MaxInt32

// ValidateGracePeriod checks how long a guest may take to shut down; nil when it is fine.
func ValidateGracePeriod(seconds int64, path *field.Path) *field.Error {
	switch {
	case seconds < 0:
		return field.Invalid(path, seconds, "must not be negative; it is in seconds")
	case seconds > maxGracePeriod:
		return field.Invalid(path, seconds, fmt.Sprintf("must be at most %d; it is in seconds", maxGracePeriod))
	}
	return nil
}

func validateToleration(toleration corev1.Toleration, at *field.Path) field.ErrorList {
	switch toleration.Operator {
	case corev1.TolerationOpExists:
		if toleration.Value != "" {
			return field.ErrorList{field.Forbidden(at.Child("value"), "cannot be set with operator Exists")}
		}
	case corev1.TolerationOpEqual, "":
		if toleration.Key == "" {
			return field.ErrorList{field.Required(at.Child("key"), "is not set; only operator Exists goes without")}
		}
	}
	return nil
}

func validateDNS(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("dnsConfig", "nameservers")
	var servers []string
	if spec.DNSConfig != nil {
		servers = spec.DNSConfig.Nameservers
	}
	var errs field.ErrorList
	if spec.DNSPolicy == corev1.DNSNone && len(servers) == 0 {
		errs = append(errs, field.Required(at, "are not set; dnsPolicy None needs at least one"))
	}
	if len(servers) > 3 {
		errs = append(errs, field.Invalid(at, len(servers), "are more than 3, which is all that resolvers read"))
	}
	for i, server := range servers {
		if _, err := netip.ParseAddr(server); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), server, fmt.Sprintf("%q is not an IP address", server)))
		}
	}
	return errs
}
