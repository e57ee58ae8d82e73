package deviceplugin

import (
	"slices"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// text is devices as ID and health, with the NUMA node if there is one.
func text(devices []*pluginapi.Device) []string {
	var out []string
	for _, d := range devices {
		line := d.ID + " " + d.Health
		if d.Topology != nil {
			line += " " + string(rune('0'+d.Topology.Nodes[0].ID))
		}
		out = append(out, line)
	}
	return out
}

func TestPool(t *testing.T) {
	p := &Pool{Variable: "PCI_RESOURCE_X"}
	a := Unit{
		ID: "1", Healthy: true, NUMA: 1, Nodes: []string{"/dev/vfio/vfio", "/dev/vfio/1"},
		Names: []string{"0000:01:00.0"},
	}
	b := Unit{
		ID: "2", Healthy: true, NUMA: -1, Nodes: []string{"/dev/vfio/vfio", "/dev/vfio/2"},
		Names: []string{"0000:02:00.0"},
	}
	if devices, _ := p.Devices(); len(devices) != 0 {
		t.Errorf("an empty pool has %v", devices)
	}
	p.Set([]Unit{b, a})
	devices, changed := p.Devices()
	if got := text(devices); !slices.Equal(got, []string{"1 Healthy 1", "2 Healthy"}) {
		t.Errorf("devices %v", got)
	}
	p.Set([]Unit{a, b})
	select {
	case <-changed:
		t.Error("what has not changed is told")
	default:
	}
	given, err := p.Allocate([]string{"2", "1"})
	if err != nil || given.Envs["PCI_RESOURCE_X"] != "0000:02:00.0,0000:01:00.0" || len(given.Devices) != 3 ||
		given.Devices[0].HostPath != "/dev/vfio/1" || given.Devices[2].ContainerPath != "/dev/vfio/vfio" ||
		given.Devices[2].Permissions != "rwm" {
		t.Errorf("given %v, %v", given, err)
	}

	p.Set([]Unit{a})
	select {
	case <-changed:
	default:
		t.Error("what has changed is not told")
	}
	devices, _ = p.Devices()
	if got := text(devices); !slices.Equal(got, []string{"1 Healthy 1", "2 Unhealthy"}) {
		t.Errorf("without b: %v", got)
	}
	for _, id := range []string{"2", "3"} {
		if _, err := p.Allocate([]string{id}); err == nil {
			t.Errorf("device %s is given away", id)
		}
	}
	p.Set([]Unit{a, b})
	if devices, _ = p.Devices(); text(devices)[1] != "2 Healthy" {
		t.Error("b has come back and is not healthy")
	}
}
