package handler

import (
	"context"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// sevUnits is how many guests with encrypted memory a node offers to hold. The processor has fewer keys, as many as its
// firmware set up; QEMU says so when they are all in use.
const sevUnits = 1000

// offerSEV offers the node's encryption of memory to guests while the feature gate is open, if the node has any.
func (h *handler) offerSEV(ctx context.Context) error {
	changed := newSignal()
	h.follower.OnChange(changed.call)
	units := func() int {
		if _, err := os.Stat(filepath.Join(nodeDev, names.DeviceSEV)); err != nil || !h.follower.Current().
			Allowed.Gates[surface.GateWorkloadEncryptionSEV] {
			return 0
		}
		return sevUnits
	}
	return whileSame(ctx, changed, units, func(ctx context.Context, units int) error {
		if units == 0 {
			<-ctx.Done()
			return nil
		}
		plugin := &deviceplugin.Plugin{
			Resource: names.ResourceSEV, Offer: deviceplugin.Shared{Device: "/dev/" + names.DeviceSEV, Count: units},
			Dir: h.devices, Socket: "virtkit-sev.sock", Log: h.log,
		}
		return plugin.Run(ctx)
	})
}
