package handler

import (
	"context"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// gated is a device of the node that all guests may share while a feature gate is open.
type gated struct {
	gate, device, resource, socket string
	// guests is the number of guests that the node offers it to.
	guests int
}

var (
	// vsock has no limit of its own.
	gatedVSOCK = gated{
		gate: surface.GateVSOCK, device: names.DeviceVSOCK, resource: names.ResourceVSOCK,
		socket: "virtkit-vsock.sock", guests: 1000,
	}
	// The processor has fewer keys for encrypted memory, as many as its firmware set up; QEMU says so when they are all
	// in use.
	gatedSEV = gated{
		gate: surface.GateWorkloadEncryptionSEV, device: names.DeviceSEV, resource: names.ResourceSEV,
		socket: "virtkit-sev.sock", guests: 1000,
	}
)

// offerGated offers a device to guests while its feature gate is open, if the node has it.
func (h *handler) offerGated(ctx context.Context, g gated) error {
	changed := newSignal()
	h.follower.OnChange(changed.call)
	guests := func() int {
		_, err := os.Stat(filepath.Join(nodeDev, g.device))
		if err != nil || !h.follower.Current().Allowed.Gates[g.gate] {
			return 0
		}
		return g.guests
	}
	return whileSame(ctx, changed, guests, func(ctx context.Context, guests int) error {
		if guests == 0 {
			<-ctx.Done()
			return nil
		}
		return h.offerShared(ctx, g.resource, "/dev/"+g.device, g.socket, guests)
	})
}

// offerShared offers a device that guests share.
func (h *handler) offerShared(ctx context.Context, resource, device, socket string, guests int) error {
	plugin := &deviceplugin.Plugin{
		Resource: resource, Offer: deviceplugin.Shared{Device: device, Count: guests},
		Dir: h.devices, Socket: socket, Log: h.log,
	}
	return plugin.Run(ctx)
}
