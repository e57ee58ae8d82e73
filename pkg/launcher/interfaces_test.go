package launcher

import (
	"encoding/json"
	"maps"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

func (l *life) setInterfaces(states map[string]v1.InterfaceState) error {
	l.t.Helper()
	vmi := demo()
	for name, state := range states {
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces,
			v1.Interface{Name: name, State: state})
	}
	b, err := json.Marshal(vmi)
	if err != nil {
		l.t.Fatal(err)
	}
	plan, err := json.Marshal(network.Plan{
		Interfaces: []network.Interface{
			{Name: "green", Tap: "tap9", MAC: "02:00:00:00:00:09"},
			{Name: "red", Tap: "tap8", MAC: "02:00:00:00:00:08"},
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = l.client.SetInterfaces(l.t.Context(), &pb.SetInterfacesRequest{VmiJson: b, NetworkPlanJson: plan})
	return err
}

func TestSetInterfaces(t *testing.T) {
	l := begin(t)
	l.mustStart()
	l.memory.change(func(d *hypervisor.Domain) {
		d.Links = map[string]string{"ua-default": "up", "ua-red": "up", "ua-blue": "down"}
	})
	links := func() map[string]string {
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		return maps.Clone(l.memory.domain.Links)
	}
	for _, step := range []struct {
		states map[string]v1.InterfaceState
		want   map[string]string
	}{
		{
			map[string]v1.InterfaceState{"default": "", "red": "up", "blue": "down"},
			map[string]string{"ua-default": "up", "ua-red": "up", "ua-blue": "down"},
		},
		{
			map[string]v1.InterfaceState{"default": "", "red": "down", "blue": ""},
			map[string]string{"ua-default": "up", "ua-red": "down", "ua-blue": "up"},
		},
		{
			map[string]v1.InterfaceState{"red": "absent", "none": "absent"},
			map[string]string{"ua-default": "up", "ua-blue": "up"},
		},
		// is not in the plan
		{map[string]v1.InterfaceState{"white": "up"}, map[string]string{"ua-default": "up", "ua-blue": "up"}},
		{map[string]v1.InterfaceState{"green": "absent"}, map[string]string{"ua-default": "up", "ua-blue": "up"}},
		{
			map[string]v1.InterfaceState{"green": ""},
			map[string]string{"ua-default": "up", "ua-blue": "up", "ua-green": "up"},
		},
		{
			map[string]v1.InterfaceState{"red": "up"},
			map[string]string{"ua-default": "up", "ua-blue": "up", "ua-green": "up", "ua-red": "up"},
		},
	} {
		for range 2 { // it is idempotent
			if err := l.setInterfaces(step.states); err != nil {
				t.Fatal(err)
			}
			if got := links(); !maps.Equal(got, step.want) {
				t.Errorf("%v: %v, want %v", step.states, got, step.want)
			}
		}
	}

	// A guest that does not let go is asked again, by a caller who is told so.
	l.memory.mu.Lock()
	l.memory.clings = true
	l.memory.mu.Unlock()
	if err := l.setInterfaces(map[string]v1.InterfaceState{
		"blue": "absent",
	}); status.Code(err) != codes.FailedPrecondition ||
		status.Convert(err).Message() != `interface "blue": the guest has not let go of the interface yet` {
		t.Errorf("%v", err)
	}
}
