package surface

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidateInstallation(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"limits": {
			`{configuration: {apiConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 5, burst: 10}}}}, controllerConfiguration: {restClient: {}}}}`,
			``,
		},
		"no requests": {
			`{configuration: {handlerConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 0, burst: 10}}}}}}`,
			`spec.configuration.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps: must be at least 1`,
		},
		"no burst": {
			`{configuration: {controllerConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 5}}}}}}`,
			`spec.configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst: must be at least 1`,
		},
		"no bucket": {
			`{configuration: {apiConfiguration: {restClient: {rateLimiter: {}}}}}`,
			`spec.configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter: is not set; leave rateLimiter out`,
		},
		"of webhooks": {
			`{configuration: {webhookConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 5, burst: 5}}}}}}`,
			`spec.configuration.webhookConfiguration: not supported by virtkit`,
		},
		"TLS 1.2": {`{configuration: {tlsConfiguration: {minTLSVersion: VersionTLS12}}}`, ``},
		"TLS 1.1": {
			`{configuration: {tlsConfiguration: {minTLSVersion: VersionTLS11}}}`,
			`spec.configuration.tlsConfiguration.minTLSVersion: "VersionTLS11" is not supported; use VersionTLS12 or VersionTLS13`,
		},
		"ciphers": {
			`{configuration: {tlsConfiguration: {ciphers: [TLS_RSA_WITH_AES_128_CBC_SHA]}}}`,
			`spec.configuration.tlsConfiguration.ciphers: not supported by virtkit`,
		},
		"uninstall": {`{uninstallStrategy: BlockUninstallIfWorkloadsExist}`, ``},
		"remove": {
			`{uninstallStrategy: RemoveWorkloads}`,
			`spec.uninstallStrategy: "RemoveWorkloads" is not supported; use BlockUninstallIfWorkloadsExist`,
		},
		"Prometheus":   {`{monitorNamespace: prom, monitorAccount: stack}`, ``},
		"other images": {`{imageRegistry: registry.example}`, `spec.imageRegistry: not supported by virtkit`},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"},
				Spec:       *parse[v1.KubeVirtSpec](t, tc.spec),
			}
			got := Message(ValidateKubeVirt(kv, nil))
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// What KubeVirt's operator does is refused with what to do instead.
func TestInstallationRemedies(t *testing.T) {
	for spec, want := range map[string]string{
		`{imageTag: v1}`:                                                    "`virtctl install --image-tag`",
		`{imageRegistry: r}`:                                                "`virtctl install --image-registry`",
		`{serviceMonitorNamespace: m}`:                                      "kubevirt",
		`{productName: p}`:                                                  "kustomization",
		`{workloads: {replicas: 3}}`:                                        "one virt-handler a node",
		`{customizeComponents: {flags: {api: {v: "5"}}}}`:                   "kustomization",
		`{configuration: {ksmConfiguration: {nodeLabelSelector: {}}}}`:      "/sys/kernel/mm/ksm",
		`{configuration: {commonInstancetypesDeployment: {enabled: true}}}`: "--instancetypes",
		`{configuration: {developerConfiguration: {pvcTolerateLessSpaceUpToPercent: 5}}}`:                                          "claim",
		`{configuration: {developerConfiguration: {minimumReservePVCBytes: 5}}}`:                                                   "claim",
		`{configuration: {supportedGuestAgentVersions: ["5"]}}`:                                                                    "AgentVersionNotSupported",
		`{configuration: {ovmfPath: /x}}`:                                                                                          "image",
		`{configuration: {seccompConfiguration: {virtualMachineInstanceProfile: {customProfile: {runtimeDefaultProfile: true}}}}}`: "RuntimeDefault",
		`{configuration: {tlsConfiguration: {ciphers: [a]}}}`:                                                                      "TLS 1.3",
		`{configuration: {webhookConfiguration: {restClient: {rateLimiter: {}}}}}`:                                                 "apiConfiguration",
	} {
		kv := &v1.KubeVirt{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"},
			Spec:       *parse[v1.KubeVirtSpec](t, spec),
		}
		if got := Message(ValidateKubeVirt(kv, nil)); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nlacks %q", spec, got, want)
		}
	}
}
