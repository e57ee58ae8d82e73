package handler

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/names"
)

// newProber makes what finds out ahead what QEMU can do on this node.
func (h *handler) newProber(kvm bool) *capabilities.Prober {
	changed := newSignal()
	h.follower.OnChange(changed.call)
	self := []string{"/proc/self/exe", "handler", "probe-capabilities"}
	return &capabilities.Prober{
		Cache: h.node.Capabilities, Root: launcherImage, Log: h.log, Changed: changed,
		Found: h.beat.call,
		Probe: capabilities.Sandbox{Self: self, Root: launcherImage, Dev: nodeDev}.Probe,
		Variants: func() []capabilities.Variant {
			_, err := os.Stat(filepath.Join(nodeDev, names.DeviceSEV))
			return variants(kvm, err == nil, h.follower.Current().UseEmulation)
		},
	}
}

// variants returns the kinds of launchers that a node may have: with a node's KVM unless the installation does without.
func variants(kvm, sev, useEmulation bool) []capabilities.Variant {
	switch {
	case !kvm || useEmulation:
		return []capabilities.Variant{{}}
	case sev:
		return []capabilities.Variant{{KVM: true}, {KVM: true, SEV: true}}
	default:
		return []capabilities.Variant{{KVM: true}}
	}
}

// hostModel returns the CPU that libvirt gives guests with host-model that have the node's KVM.
func (h *handler) hostModel() (nodestatus.HostModel, error) {
	data, err := h.node.Prober.Domain(capabilities.Variant{KVM: true})
	switch {
	case errors.Is(err, capabilities.ErrNotProbed):
		return nodestatus.HostModel{}, nodestatus.ErrNotYet
	case err != nil:
		return nodestatus.HostModel{}, err
	}
	return nodestatus.ParseHostModel(data)
}

// probe fills the node's cache once it is known whether guests have KVM.
func (h *handler) probe(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-h.follower.Ready():
	}
	return h.node.Prober.Run(ctx)
}
