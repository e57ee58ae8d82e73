package vmicontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/config"
)

// LimitsCPU reports whether the installation's configuration limits the CPU time of a namespace's guests. It asks for
// the namespace, which is not kept, only where there is such a configuration.
func LimitsCPU(ctx context.Context, live client.Reader, installation config.Config, namespace string) (bool, error) {
	if installation.LimitedNamespaces == nil {
		return false, nil
	}
	var found corev1.Namespace
	if err := live.Get(ctx, types.NamespacedName{Name: namespace}, &found); err != nil {
		return false, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	return installation.LimitedNamespaces.Matches(labels.Set(found.Labels)), nil
}

// most is as many CPUs, or what is requested if that is more.
func most(requested resource.Quantity, cpus int64) resource.Quantity {
	if all := *resource.NewQuantity(cpus, resource.DecimalSI); requested.Cmp(all) < 0 {
		return all
	}
	return requested.DeepCopy()
}
