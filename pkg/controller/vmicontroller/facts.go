package vmicontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// Gather adds to facts that have a configuration and claims what else a launcher pod of vmi depends on. fenceAfter
// applies to guests that are started again elsewhere.
func (f *Facts) Gather(
	ctx context.Context, cache, live client.Reader, vmi *v1.VirtualMachineInstance, fenceAfter time.Duration,
) error {
	var err error
	if f.KVM, err = f.offersKVM(ctx, cache); err != nil {
		return err
	}
	if f.Limits, err = ReadLimits(ctx, live, f.Config, vmi.Namespace); err != nil {
		return err
	}
	f.NetworkResources, f.Keepings, f.NetworkErr = Networks(ctx, cache, live, vmi)
	f.FenceAfter, err = FenceAfter(ctx, cache, vmi, fenceAfter)
	return err
}

// offersKVM reports whether some node has hardware KVM.
func (f *Facts) offersKVM(ctx context.Context, cache client.Reader) (bool, error) {
	if f.Config.UseEmulation {
		return false, nil
	}
	var nodes corev1.NodeList
	if err := cache.List(ctx, &nodes); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if quantity := nodes.Items[i].Status.Allocatable[names.ResourceKVM]; !quantity.IsZero() {
			return true, nil
		}
	}
	return false, nil
}
