package virtapi

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/service/metrics"
)

func TestConnections(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newConnections()
	c.now = func() time.Time { return now }
	written := func() string {
		var out bytes.Buffer
		w := metrics.NewWriter(&out)
		c.write(context.Background(), w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		var series []string
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "#") {
				series = append(series, strings.TrimPrefix(strings.TrimSpace(line), "kubevirt_"))
			}
		}
		return strings.Join(series, "\n")
	}
	const vmi = "/v1/namespaces/ns/virtualmachineinstances/demo/"
	if got := written(); got != "" {
		t.Errorf("nobody is connected: %s", got)
	}
	console, tunnel, second := c.begin(vmi+"console"), c.begin(vmi+"portforward/22/tcp"),
		c.begin(vmi+"portforward/80/udp")
	c.begin(vmi + "guestosinfo")()
	c.begin("/v1/stats")()
	const all = `console_active_connections{namespace="ns",vmi="demo"} %d
vnc_active_connections{namespace="ns",vmi="demo"} 0
usbredir_active_connections{namespace="ns",vmi="demo"} 0
portforward_active_tunnels{namespace="ns",vmi="demo"} %d
vmi_last_api_connection_timestamp_seconds{namespace="ns",vmi="demo"} %d`
	if got, want := written(), fmt.Sprintf(all, 1, 2, 1000); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	now = now.Add(time.Hour)
	second()
	tunnel()
	c.begin(vmi + "exec")()
	if got, want := written(), fmt.Sprintf(all, 1, 0, 4600); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	now = now.Add(2 * remembered)
	if written() == "" {
		t.Error("a guest whose console is open is forgotten")
	}
	console()
	if got := written(); got != "" {
		t.Errorf("written for ever: %s", got)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	c := newConnections()
	for i := range maxRemembered + 10 {
		c.begin(fmt.Sprintf("/v1/namespaces/ns/virtualmachineinstances/vm%d/vnc", i))()
	}
	if n := len(c.guests); n > maxRemembered {
		t.Errorf("%d guests are remembered", n)
	}
}
