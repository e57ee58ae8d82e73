package config

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
)

// DefaultInstancesPerNode is how many guests with KVM a node offers to hold; KubeVirt's.
const DefaultInstancesPerNode = 1000

// Support has the resources that the containers beside a guest's ask for.
type Support struct {
	// ConsoleLog is of guest-console-log, Attachment of the pods that hold hotplugged claims; nil leaves it to
	// virt-controller.
	ConsoleLog, Attachment *corev1.ResourceRequirements
}

func support(given []v1.SupportContainerResources) Support {
	var out Support
	for i := range given {
		resources := &corev1.ResourceRequirements{
			Requests: given[i].Resources.Requests,
			Limits:   given[i].Resources.Limits,
		}
		switch given[i].Type {
		case v1.GuestConsoleLog:
			out.ConsoleLog = resources
		case v1.HotplugAttachment:
			out.Attachment = resources
		}
	}
	return out
}

// limitedNamespaces returns the selector of the namespaces whose guests get a CPU limit; nil for none.
func limitedNamespaces(given *metav1.LabelSelector) (labels.Selector, error) {
	if given == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(given)
	if err != nil {
		return nil, fmt.Errorf("spec.configuration.autoCPULimitNamespaceLabelSelector: %w", err)
	}
	return selector, nil
}
