package vmicontroller

import (
	"context"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/config"
)

// defaultMemoryRatio is the ratio of a launcher's memory limit to its request, where a ResourceQuota demands a limit
// and the namespace has no v1.AutoMemoryLimitsRatioLabel.
const defaultMemoryRatio = 2

// Limits are the limits of a guest's pod where its VMI has none. The zero value sets none.
type Limits struct {
	// CPU says that the guest gets no more CPU time than its vCPUs.
	CPU bool
	// MemoryRatio is the ratio of the pod's memory limit to its request; 0 means no limit.
	MemoryRatio float64
}

// ReadLimits returns the limits of a namespace's guests.
func ReadLimits(
	ctx context.Context, live client.Reader, installation config.Config, namespace string,
) (Limits, error) {
	var quotas corev1.ResourceQuotaList
	if err := live.List(ctx, &quotas, client.InNamespace(namespace)); err != nil {
		return Limits{}, fmt.Errorf("list resource quotas: %w", err)
	}
	var found corev1.Namespace
	if installation.LimitedNamespaces != nil || demanded(quotas.Items, corev1.ResourceLimitsMemory) {
		if err := live.Get(ctx, types.NamespacedName{Name: namespace}, &found); err != nil {
			return Limits{}, fmt.Errorf("get namespace %s: %w", namespace, err)
		}
	}
	return limitsIn(found.Labels, quotas.Items, installation.LimitedNamespaces), nil
}

// limitsIn returns the limits of guests in a namespace with these labels and quotas: the API server refuses a pod
// without a limit where a quota counts limits. limited selects the namespaces that the installation limits; nil is
// none.
func limitsIn(namespace labels.Set, quotas []corev1.ResourceQuota, limited labels.Selector) Limits {
	out := Limits{
		CPU: demanded(quotas, corev1.ResourceLimitsCPU) || limited != nil && limited.Matches(namespace),
	}
	if demanded(quotas, corev1.ResourceLimitsMemory) {
		out.MemoryRatio = defaultMemoryRatio
		// One that is no number, or less than 1, is as none; so it is in KubeVirt.
		ratio, err := strconv.ParseFloat(namespace[v1.AutoMemoryLimitsRatioLabel], 64)
		if err == nil && ratio >= 1 && !math.IsInf(ratio, 0) {
			out.MemoryRatio = ratio
		}
	}
	return out
}

// demanded reports whether a quota counts a resource.
func demanded(quotas []corev1.ResourceQuota, name corev1.ResourceName) bool {
	for i := range quotas {
		if _, ok := quotas[i].Spec.Hard[name]; ok {
			return true
		}
	}
	return false
}

// most returns cpus CPUs, or what is requested if that is more.
func most(requested resource.Quantity, cpus int64) resource.Quantity {
	if all := *resource.NewQuantity(cpus, resource.DecimalSI); requested.Cmp(all) < 0 {
		return all
	}
	return requested.DeepCopy()
}

// limitMemory returns the memory that a container may have which requests so much: ratio times that, and never less
// than it needs, which may be more than it requests where memory is overcommitted.
func limitMemory(requested resource.Quantity, ratio float64, needed int64) resource.Quantity {
	limit := float64(requested.Value()) * ratio
	if limit > math.MaxInt64/2 { // no node has it
		limit = math.MaxInt64 / 2
	}
	return *resource.NewQuantity(max(int64(limit), needed), resource.BinarySI)
}
