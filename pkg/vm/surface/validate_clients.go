package surface

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// minTLSVersions are those that TLS 1.3, which the components speak, is enough for.
var minTLSVersions = []string{string(v1.VersionTLS12), string(v1.VersionTLS13)}

// uninstallStrategies are the strategies that `virtctl uninstall` follows.
var uninstallStrategies = []string{string(v1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist)}

// validateRateLimits checks how many requests the components may make: none would stop them for good.
func validateRateLimits(configuration *v1.KubeVirtConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, of := range []struct {
		name string
		c    *v1.ReloadableComponentConfiguration
	}{
		{"apiConfiguration", configuration.APIConfiguration},
		{"controllerConfiguration", configuration.ControllerConfiguration},
		{"handlerConfiguration", configuration.HandlerConfiguration},
	} {
		if of.c == nil || of.c.RestClient == nil || of.c.RestClient.RateLimiter == nil {
			continue
		}
		path := at.Child(of.name, "restClient", "rateLimiter", "tokenBucketRateLimiter")
		bucket := of.c.RestClient.RateLimiter.TokenBucketRateLimiter
		switch {
		case bucket == nil:
			errs = append(errs, field.Required(path, "is not set; leave rateLimiter out for the component's own limit"))
		case !(bucket.QPS >= 1):
			errs = append(errs, field.Invalid(path.Child("qps"), bucket.QPS, "must be at least 1 request a second"))
		case bucket.Burst < 1:
			errs = append(errs, field.Invalid(path.Child("burst"), bucket.Burst, "must be at least 1"))
		}
	}
	return errs
}
