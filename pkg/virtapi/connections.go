package virtapi

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

const (
	// remembered is the time for which the metric of a guest's last connection is exposed.
	remembered = 24 * time.Hour
	// maxRemembered bounds of how many guests.
	maxRemembered = 10_000
)

// connections counts who is connected to which guest.
type connections struct {
	now func() time.Time

	mu     sync.Mutex
	guests map[types.NamespacedName]*visited
}

// visited holds what is known of one guest: its open streams, by their verb, and when the last one was opened.
type visited struct {
	open map[string]int
	last time.Time
}

func newConnections() *connections {
	return &connections{now: time.Now, guests: map[types.NamespacedName]*visited{}}
}

// counted are the verbs whose streams are counted.
var counted = []struct {
	verb   string
	family *metrics.Family
}{
	{"console", metrics.Consoles},
	{"vnc", metrics.Screens},
	{"usbredir", metrics.USBPorts},
	{"portforward", metrics.Tunnels},
	{"vsock", nil},
	{exec.Subresource, nil},
	{copyfile.Subresource, nil},
}

// begin counts a stream of virt-handler's path in, and gives what counts it out.
func (c *connections) begin(path string) (end func()) {
	vmi, verb, ok := streamOf(path)
	if !ok {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	guest := c.guests[vmi]
	if guest == nil {
		if len(c.guests) >= maxRemembered {
			c.forget(0)
		}
		guest = &visited{open: map[string]int{}}
		c.guests[vmi] = guest
	}
	guest.open[verb]++
	guest.last = c.now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if guest.open[verb]--; guest.open[verb] == 0 {
			delete(guest.open, verb)
		}
	}
}

// forget drops guests that nobody is connected to and that nobody has visited for so long.
func (c *connections) forget(after time.Duration) {
	now := c.now()
	for vmi, guest := range c.guests {
		if len(guest.open) == 0 && now.Sub(guest.last) >= after {
			delete(c.guests, vmi)
		}
	}
}

// streamOf returns the VMI of a path of virt-handler's, if the verb is one whose connections are counted.
func streamOf(path string) (vmi types.NamespacedName, verb string, ok bool) {
	vmi, verb, ok = stream.ParseHandlerPath(path)
	for _, known := range counted {
		if ok && verb == known.verb {
			return vmi, verb, true
		}
	}
	return types.NamespacedName{}, "", false
}

// write writes the metrics.
func (c *connections) write(_ context.Context, w *metrics.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(remembered)
	for _, known := range counted {
		if known.family == nil {
			continue
		}
		w.Family(known.family)
		for vmi, guest := range c.guests {
			// 0 is exposed, too, as long as the guest is remembered: a gauge that vanishes is not one that went down.
			w.Series(float64(guest.open[known.verb]), "", vmi.Namespace, vmi.Name)
		}
	}
	w.Family(metrics.LastConnection)
	for vmi, guest := range c.guests {
		w.Series(float64(guest.last.Unix()), "", vmi.Namespace, vmi.Name)
	}
}
