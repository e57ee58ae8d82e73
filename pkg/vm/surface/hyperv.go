package surface

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// minSpinlocks is the fewest retries that Hyper-V knows.
	minSpinlocks = 4096
	// maxVendorID is the longest vendor, characters.
	maxVendorID = 12
	// featureVMX is the CPU feature that evmcs rests on, and requirePolicy says that a guest does not start without.
	featureVMX    = "vmx"
	requirePolicy = "require"
)

// enlightenment is a feature of Hyper-V with the one that it needs; KubeVirt's list.
type enlightenment struct {
	name  string
	on    func(*v1.FeatureHyperv) bool
	needs string
	// of returns the field of the feature in needs.
	of func(*v1.FeatureHyperv) **v1.FeatureState
}

func vpindex(h *v1.FeatureHyperv) **v1.FeatureState { return &h.VPIndex }

// enlightenments are those that rest on another, before what they rest on.
var enlightenments = []enlightenment{
	{"synictimer", func(h *v1.FeatureHyperv) bool {
		return h.SyNICTimer != nil &&
			switchedOn(&h.SyNICTimer.FeatureState)
	}, "synic", func(h *v1.FeatureHyperv) **v1.FeatureState { return &h.SyNIC }},
	{"synic", func(h *v1.FeatureHyperv) bool { return switchedOn(h.SyNIC) }, "vpindex", vpindex},
	{
		"tlbflush", func(h *v1.FeatureHyperv) bool { return h.TLBFlush != nil && switchedOn(&h.TLBFlush.FeatureState) },
		"vpindex", vpindex,
	},
	{"ipi", func(h *v1.FeatureHyperv) bool { return switchedOn(h.IPI) }, "vpindex", vpindex},
	{
		"evmcs", func(h *v1.FeatureHyperv) bool { return switchedOn(h.EVMCS) }, "vapic",
		func(h *v1.FeatureHyperv) **v1.FeatureState { return &h.VAPIC },
	},
}

func switchedOn(s *v1.FeatureState) bool { return s != nil && (s.Enabled == nil || *s.Enabled) }

// defaultHyperv switches on what other features of Hyper-V rest on, unless it is switched off, which validation
// refuses.
func defaultHyperv(domain *v1.DomainSpec) {
	if domain.Features == nil || domain.Features.Hyperv == nil {
		return
	}
	h := domain.Features.Hyperv
	for _, e := range enlightenments {
		if needed := e.of(h); e.on(h) && (*needed == nil || (*needed).Enabled == nil) {
			*needed = &v1.FeatureState{Enabled: new(true)}
		}
	}
	if !switchedOn(h.EVMCS) {
		return
	}
	for _, feature := range domain.CPU.Features {
		if feature.Name == featureVMX {
			return
		}
	}
	domain.CPU.Features = append(domain.CPU.Features, v1.CPUFeature{Name: featureVMX, Policy: requirePolicy})
}

func validateHyperv(domain *v1.DomainSpec, path *field.Path) field.ErrorList {
	features := domain.Features
	if features == nil || features.Hyperv == nil {
		return nil
	}
	var errs field.ErrorList
	h, at := features.Hyperv, path.Child("features", "hyperv")
	if p := features.HypervPassthrough; p != nil && (p.Enabled == nil || *p.Enabled) {
		errs = append(errs, field.Forbidden(path.Child("features", "hypervPassthrough"),
			"shows the guest all of Hyper-V, so hyperv has nothing to choose; remove one of them"))
	}
	for _, e := range enlightenments {
		if e.on(h) && !switchedOn(*e.of(h)) {
			errs = append(errs, field.Forbidden(at.Child(e.needs, "enabled"),
				fmt.Sprintf("cannot be off while %s is on, which rests on it; switch it on or %s off", e.name, e.name)))
		}
	}
	if s := h.Spinlocks; s != nil && s.Retries != nil && *s.Retries < minSpinlocks {
		errs = append(errs, field.Invalid(at.Child("spinlocks", "spinlocks"), *s.Retries,
			fmt.Sprintf("%d is too few; the least is %d", *s.Retries, minSpinlocks)))
	}
	if v := h.VendorID; v != nil && switchedOn(&v.FeatureState) {
		switch {
		case v.VendorID == "":
			errs = append(errs, field.Required(at.Child("vendorid", "vendorid"),
				"is not set; it is what the guest takes its hypervisor for"))
		case len(v.VendorID) > maxVendorID || !printable.MatchString(v.VendorID):
			errs = append(errs, field.Invalid(at.Child("vendorid", "vendorid"), v.VendorID,
				fmt.Sprintf("must be at most %d printable ASCII characters", maxVendorID)))
		}
	}
	if !switchedOn(h.EVMCS) || domain.CPU == nil {
		return errs
	}
	for i, feature := range domain.CPU.Features {
		if feature.Name == featureVMX && (feature.Policy == "disable" || feature.Policy == "forbid") {
			errs = append(errs, field.Forbidden(path.Child("cpu", "features").Index(i).Child("policy"),
				"cannot keep vmx from the guest while hyperv.evmcs is on, which rests on it; use require or switch "+
					"evmcs off"))
		}
	}
	return errs
}
