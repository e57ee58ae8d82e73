package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// defaultSpinlocks is the number of spins after which a guest notifies the hypervisor, the least that Windows takes.
const defaultSpinlocks = 4096

// hyperv returns the Hyper-V features that the guest is shown; nil for none. KVM has it, emulation has not.
func hyperv(f *v1.Features) *libvirtxml.DomainFeatureHyperV {
	if p := f.HypervPassthrough; p != nil && enabled(p.Enabled, true) {
		return &libvirtxml.DomainFeatureHyperV{Mode: "passthrough"}
	}
	h := f.Hyperv
	if h == nil {
		return nil
	}
	out := &libvirtxml.DomainFeatureHyperV{
		Relaxed: hypervState(h.Relaxed), VAPIC: hypervState(h.VAPIC), VPIndex: hypervState(h.VPIndex),
		Runtime: hypervState(h.Runtime),
		Synic:   hypervState(h.SyNIC), Reset: hypervState(h.Reset), Frequencies: hypervState(h.Frequencies),
		ReEnlightenment: hypervState(h.Reenlightenment), IPI: hypervState(h.IPI), EVMCS: hypervState(h.EVMCS),
	}
	if s := h.Spinlocks; s != nil {
		out.Spinlocks = &libvirtxml.DomainFeatureHyperVSpinlocks{DomainFeatureState: *hypervState(&s.FeatureState)}
		if enabled(s.Enabled, true) {
			out.Spinlocks.Retries = defaultSpinlocks
			if s.Retries != nil {
				out.Spinlocks.Retries = uint(*s.Retries)
			}
		}
	}
	if t := h.SyNICTimer; t != nil {
		out.STimer = &libvirtxml.DomainFeatureHyperVSTimer{
			DomainFeatureState: *hypervState(&t.FeatureState),
			Direct:             hypervState(t.Direct),
		}
	}
	if v := h.VendorID; v != nil {
		out.VendorId = &libvirtxml.DomainFeatureHyperVVendorId{DomainFeatureState: *hypervState(&v.FeatureState)}
		if enabled(v.Enabled, true) {
			out.VendorId.Value = v.VendorID
		}
	}
	if t := h.TLBFlush; t != nil {
		out.TLBFlush = &libvirtxml.DomainFeatureHyperVTLBFlush{
			DomainFeatureState: *hypervState(&t.FeatureState), Direct: hypervState(t.Direct),
			Extended: hypervState(t.Extended),
		}
	}
	return out
}

func hypervState(s *v1.FeatureState) *libvirtxml.DomainFeatureState {
	if s == nil {
		return nil
	}
	return &libvirtxml.DomainFeatureState{State: onOff(enabled(s.Enabled, true))}
}

// steadyClock gives the guest a time stamp counter that ticks as often on each node to which it may move.
func steadyClock(clock *libvirtxml.DomainClock, hints *v1.TopologyHints) {
	if hints != nil && hints.TSCFrequency != nil && *hints.TSCFrequency > 0 {
		clock.Timer = append(clock.Timer, libvirtxml.DomainTimer{Name: "tsc", Frequency: uint64(*hints.TSCFrequency)})
	}
}

// hypervClock adds the clock that the synthetic timers count by, unless the VMI says whether there is one.
func hypervClock(clock *libvirtxml.DomainClock, h *libvirtxml.DomainFeatureHyperV) {
	if h == nil || h.STimer == nil || h.STimer.State != "on" {
		return
	}
	for _, t := range clock.Timer {
		if t.Name == "hypervclock" {
			return
		}
	}
	clock.Timer = append(clock.Timer, libvirtxml.DomainTimer{Name: "hypervclock", Present: "yes"})
}
