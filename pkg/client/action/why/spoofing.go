package why

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Guarded reports whether frames of an instance's guest are looked at on one of its interfaces: whether it is a host of
// a network there, and not behind its pod or on a card of its own.
func Guarded(spec *v1.VirtualMachineInstanceSpec) bool {
	for i := range spec.Domain.Devices.Interfaces {
		if nic := &spec.Domain.Devices.Interfaces[i]; nic.Bridge != nil || nic.Binding != nil {
			return true
		}
	}
	return false
}

// spoofed adds a remark for each interface on which frames were dropped that the guest has sent as somebody else. It
// may mean to, or be set up with an address that its network has not given it, at which nobody hears it.
func (e *explanation) spoofed() {
	for i := range e.Dropped {
		nic := &e.Dropped[i]
		var frames uint64
		var kinds []string
		for _, d := range nic.Dropped {
			if d.Frames > 0 {
				frames += d.Frames
				kinds = append(kinds, fmt.Sprintf("%d %s", d.Frames, d.Kind))
			}
		}
		if frames == 0 {
			continue
		}
		noun := "frames were"
		if frames == 1 {
			noun = "frame was"
		}
		e.add(rankRemark, LayerQEMU, "domain/"+e.Name, OK, "FramesDropped",
			fmt.Sprintf("%d %s dropped that the guest sent on interface %s as somebody else: %s", frames, noun,
				nic.Name, strings.Join(kinds, ", ")),
			"virtctl firewall show "+e.Name+e.flag(),
			"for a guest that has to: annotation "+network.AllowSpoofing+" of spec.template.metadata, with "+nic.Name+
				" in it, in a namespace that an administrator has given the label "+network.AllowSpoofing+"=true; "+
				"then: virtctl restart "+e.Name+e.flag())
	}
}
