package surface

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validateScheduling checks what goes into the pod as it is, by the rules of pods.
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
	errs = append(errs,
		validateTopologySpread(spec.TopologySpreadConstraints, root.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateAffinity(spec.Affinity, root.Child("affinity"))...)
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

// What resolvers read at most; Kubernetes' limits.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchText  = 2048 // characters, with a space between two
)

func validateDNS(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	config := spec.DNSConfig
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	root = root.Child("dnsConfig")
	at := root.Child("nameservers")
	var errs field.ErrorList
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		errs = append(errs, field.Required(at, "are not set; dnsPolicy None needs at least one"))
	}
	if n := len(config.Nameservers); n > maxNameservers {
		errs = append(errs,
			field.Invalid(at, n, fmt.Sprintf("are more than %d, which is all that resolvers read", maxNameservers)))
	}
	for i, server := range config.Nameservers {
		if _, err := netip.ParseAddr(server); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), server, fmt.Sprintf("%q is not an IP address", server)))
		}
	}
	at = root.Child("searches")
	if n := len(config.Searches); n > maxSearches {
		errs = append(errs,
			field.Invalid(at, n, fmt.Sprintf("are more than %d, which is all that resolvers read", maxSearches)))
	}
	if n := len(strings.Join(config.Searches, " ")); n > maxSearchText {
		errs = append(errs,
			field.Invalid(at, n, fmt.Sprintf("have %d characters together; the most is %d", n, maxSearchText)))
	}
	for i, search := range config.Searches {
		if name := strings.TrimSuffix(search, "."); search != "." &&
			len(validation.IsDNS1123SubdomainWithUnderscore(name)) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), search,
				fmt.Sprintf("%q is not a domain to search in, such as svc.cluster.local", search)))
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(root.Child("options").Index(i).Child("name"), "is not set"))
		}
	}
	return errs
}
