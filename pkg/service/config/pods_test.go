package config

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestPods(t *testing.T) {
	kv := &v1.KubeVirt{}
	const text = `
virtualMachineInstancesPerNode: 7
autoCPULimitNamespaceLabelSelector: {matchLabels: {tier: shared}}
supportContainerResources:
- {type: guest-console-log, resources: {requests: {memory: 20Mi}}}
- {type: hotplug-disk, resources: {limits: {cpu: 50m}}}
`
	if err := yaml.UnmarshalStrict([]byte(text), &kv.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	got, err := FromKubeVirt(kv)
	if err != nil {
		t.Fatal(err)
	}
	if got.InstancesPerNode != 7 || !got.LimitedNamespaces.Matches(labels.Set{"tier": "shared"}) ||
		got.LimitedNamespaces.Matches(labels.Set{}) {
		t.Errorf("%+v", got)
	}
	if log, attachment := got.Support.ConsoleLog, got.Support.Attachment; log.Requests.Memory().String() != "20Mi" ||
		attachment.Limits.Cpu().String() != "50m" {
		t.Errorf("%+v", got.Support)
	}
	kv.Spec.Configuration.AutoCPULimitNamespaceLabelSelector.MatchLabels["tier"] = "not a label!"
	if got, err := FromKubeVirt(kv); err == nil || got.LimitedNamespaces != nil || got.InstancesPerNode != 7 {
		t.Errorf("a selector that is none: %+v, %v", got.LimitedNamespaces, err)
	}
	if got := Default(); got.InstancesPerNode != 1000 || got.LimitedNamespaces != nil || got.Support != (Support{}) {
		t.Errorf("default %+v", got)
	}
}
