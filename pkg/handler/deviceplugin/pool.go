package deviceplugin

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Unit is one unit of a resource, which one container has at a time.
type Unit struct {
	// ID stays the same as long as the unit does, since the kubelet remembers by it who has it.
	ID string
	// Healthy says that it can be given away.
	Healthy bool
	// NUMA is the node's NUMA node that the unit is on; -1 for none in particular.
	NUMA int
	// Nodes are its device nodes, Names the values by which the container learns of it.
	Nodes, Names []string
}

// Pool offers units that are found out, and may come and go.
type Pool struct {
	// Variable is the environment variable that names a container's units.
	Variable string

	mu      sync.Mutex
	units   []Unit
	changed chan struct{}
}

// Set has the pool offer these units. What it offered before and is not there any more is not healthy.
func (p *Pool) Set(units []Unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := slices.Clone(units)
	for _, old := range p.units {
		if !slices.ContainsFunc(units, func(u Unit) bool { return u.ID == old.ID }) {
			old.Healthy = false
			next = append(next, old)
		}
	}
	slices.SortFunc(next, func(a, b Unit) int { return strings.Compare(a.ID, b.ID) })
	if reflect.DeepEqual(next, p.units) {
		return
	}
	p.units = next
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Devices returns the units.
func (p *Pool) Devices() ([]*pluginapi.Device, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	devices := make([]*pluginapi.Device, len(p.units))
	for i, u := range p.units {
		devices[i] = &pluginapi.Device{ID: u.ID, Health: pluginapi.Unhealthy}
		if u.Healthy {
			devices[i].Health = pluginapi.Healthy
		}
		if u.NUMA >= 0 {
			devices[i].Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(u.NUMA)}}}
		}
	}
	return devices, p.changed
}

// Allocate returns units. It is an error if one does not exist.
func (p *Pool) Allocate(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var nodes, units []string
	for _, id := range ids {
		i := slices.IndexFunc(p.units, func(u Unit) bool { return u.ID == id })
		if i < 0 || !p.units[i].Healthy {
			return nil, fmt.Errorf("device %q is not there any more", id)
		}
		nodes, units = append(nodes, p.units[i].Nodes...), append(units, p.units[i].Names...)
	}
	slices.Sort(nodes)
	response := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{p.Variable: strings.Join(units, ",")}}
	for _, node := range slices.Compact(nodes) { // units share some
		response.Devices = append(response.Devices,
			&pluginapi.DeviceSpec{HostPath: node, ContainerPath: node, Permissions: "rwm"})
	}
	return response, nil
}
