package surface

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidatePods(t *testing.T) {
	for name, tc := range map[string]struct{ configuration, want string }{
		"all": {
			`{virtualMachineInstancesPerNode: 10, autoCPULimitNamespaceLabelSelector: {matchLabels: {a: b}}, supportContainerResources: [
			{type: guest-console-log, resources: {requests: {cpu: 1m}, limits: {cpu: 10m}}}, {type: hotplug-disk, resources: {limits: {memory: 80M}}}]}`,
			``,
		},
		"no guest": {
			`{virtualMachineInstancesPerNode: 0}`,
			`spec.configuration.virtualMachineInstancesPerNode: must be 1 or more`,
		},
		"no label": {
			`{autoCPULimitNamespaceLabelSelector: {matchLabels: {a: "b c"}}}`,
			`spec.configuration.autoCPULimitNamespaceLabelSelector`,
		},
		"no container": {
			`{supportContainerResources: [{type: container-disk, resources: {requests: {cpu: 1m}}}]}`,
			`spec.configuration.supportContainerResources[0].type: "container-disk" is not supported; use guest-console-log or hotplug-disk`,
		},
		"twice": {
			`{supportContainerResources: [{type: hotplug-disk, resources: {}}, {type: hotplug-disk, resources: {}}]}`,
			`spec.configuration.supportContainerResources[1].type`,
		},
		"more than most": {
			`{supportContainerResources: [{type: hotplug-disk, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}`,
			`spec.configuration.supportContainerResources[0].resources.requests[cpu]: must not be more than the limit, 1`,
		},
		"less than none": {
			`{supportContainerResources: [{type: hotplug-disk, resources: {requests: {cpu: -1}}}]}`,
			`spec.configuration.supportContainerResources[0].resources.requests[cpu]: must not be negative`,
		},
		"pages": {
			`{supportContainerResources: [{type: hotplug-disk, resources: {limits: {hugepages-2Mi: 2Mi}}}]}`,
			`spec.configuration.supportContainerResources[0].resources: "hugepages-2Mi" is not given to such a container; use cpu, memory or ephemeral-storage`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}}
			kv.Spec.Configuration = *parse[v1.KubeVirtConfiguration](t, tc.configuration)
			got := Message(ValidateKubeVirt(kv, nil))
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
