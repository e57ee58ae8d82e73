package hostdevices

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
)

// interval is the time between looks at the node while something is permitted.
const interval = 20 * time.Second

// Offers runs a device plugin for each resource that is permitted and for which the node has a device.
type Offers struct {
	// Permitted returns what the KubeVirt resource permits now, nil for nothing. Changed signals that it may have
	// changed.
	Permitted func() *v1.PermittedHostDevices
	Changed   <-chan struct{}
	// Sys and Dev are the node's /sys and /dev.
	Sys, Dev fs.FS
	// Dir is the kubelet's device plugin directory.
	Dir string
	Log *slog.Logger
	// Tick makes the ticks at which the node is looked at, until stop is called; nil is every 20 seconds.
	Tick func() (ticks <-chan time.Time, stop func())

	running map[string]*running
}

// running is a plugin that runs.
type running struct {
	variable string
	pool     *deviceplugin.Pool
	stop     context.CancelFunc
	done     chan struct{}
}

// Run follows the configuration and the node until the context ends.
func (o *Offers) Run(ctx context.Context) error {
	if o.Tick == nil {
		o.Tick = func() (<-chan time.Time, func()) {
			ticker := time.NewTicker(interval)
			return ticker.C, ticker.Stop
		}
	}
	o.running = map[string]*running{}
	defer func() {
		for name := range o.running {
			o.end(name)
		}
	}()
	var ticks <-chan time.Time
	stop := func() {}
	defer func() { stop() }()
	for {
		permitted := o.Permitted()
		switch {
		case permitted == nil && ticks != nil:
			stop()
			ticks, stop = nil, func() {}
		case permitted != nil && ticks == nil:
			ticks, stop = o.Tick()
		}
		o.look(ctx, permitted)
		select {
		case <-ctx.Done():
			return nil
		case <-o.Changed:
		case <-ticks:
		}
	}
}

// look offers the present devices.
func (o *Offers) look(ctx context.Context, permitted *v1.PermittedHostDevices) {
	offered := map[string]Offered{}
	if permitted != nil {
		found, err := Find(o.Sys)
		if err != nil {
			o.Log.Warn("not all devices of the node are known", "err", err)
		}
		offered = found.Offered(permitted, o.Dev)
	}
	configured := own(permitted)
	for name, r := range o.running {
		if now, ok := offered[name]; !configured[name] || ok && now.Variable != r.variable {
			o.Log.Info("devices are not offered any more", "resource", name)
			o.end(name)
		} else if !ok {
			r.pool.Set(nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(offered)) {
		if r := o.running[name]; r != nil {
			r.pool.Set(offered[name].Units)
			continue
		}
		o.begin(ctx, name, offered[name])
	}
}

// own returns the resources that virt-handler is to offer, whether there is something or not.
func own(permitted *v1.PermittedHostDevices) map[string]bool {
	out := map[string]bool{}
	if permitted == nil {
		return out
	}
	for _, d := range permitted.PciHostDevices {
		out[d.ResourceName] = out[d.ResourceName] || !d.ExternalResourceProvider
	}
	for _, d := range permitted.MediatedDevices {
		out[d.ResourceName] = out[d.ResourceName] || !d.ExternalResourceProvider
	}
	for _, d := range permitted.USB {
		out[d.ResourceName] = out[d.ResourceName] || !d.ExternalResourceProvider
	}
	return out
}

// socket returns the file name of a resource's plugin, short enough for any resource.
func socket(resource string) string {
	sum := sha256.Sum256([]byte(resource))
	return "virtkit-" + hex.EncodeToString(sum[:6]) + ".sock"
}

func (o *Offers) begin(ctx context.Context, name string, offered Offered) {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{
		variable: offered.Variable, pool: &deviceplugin.Pool{Variable: offered.Variable}, stop: cancel,
		done: make(chan struct{}),
	}
	r.pool.Set(offered.Units)
	o.running[name] = r
	plugin := &deviceplugin.Plugin{Resource: name, Offer: r.pool, Dir: o.Dir, Socket: socket(name), Log: o.Log}
	go func() {
		defer close(r.done)
		if err := plugin.Run(ctx); err != nil {
			o.Log.Error("devices are not offered", "resource", name, "err", err)
		}
	}()
}

// end stops a plugin: the kubelet, which loses it, offers none of its devices any more.
func (o *Offers) end(name string) {
	r := o.running[name]
	delete(o.running, name)
	r.stop()
	<-r.done
}
