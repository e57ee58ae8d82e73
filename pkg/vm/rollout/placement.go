package rollout

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"
)

// The fields of a template that say on which nodes its guests may be, without what goes before.
const (
	selectorPath    = "nodeSelector"
	affinityPath    = "affinity"
	tolerationsPath = "tolerations"
)

var placementPaths = []string{selectorPath, affinityPath, tolerationsPath}

// placed begins the template's hash of a VMI whose controller did not count the placement in it.
const placed = "placed-"

// The notes on a placement that changes.
const (
	notePlace  = "the guest stays where it is, and moves by it"
	noteStaged = "vmRolloutStrategy is Stage"
)

// Placement is on which nodes a guest may be.
type Placement struct {
	NodeSelector map[string]string
	Affinity     *corev1.Affinity
	Tolerations  []corev1.Toleration
}

// PlacementOf returns the placement of a spec.
func PlacementOf(spec *v1.VirtualMachineInstanceSpec) Placement {
	return Placement{NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations}
}

// Apply writes it into a spec.
func (p Placement) Apply(spec *v1.VirtualMachineInstanceSpec) {
	spec.NodeSelector, spec.Affinity, spec.Tolerations = maps.Clone(p.NodeSelector), p.Affinity.DeepCopy(), nil
	for i := range p.Tolerations {
		spec.Tolerations = append(spec.Tolerations, *p.Tolerations[i].DeepCopy())
	}
}

// Placing holds what the placement in a VM's template means for its running guest.
type Placing struct {
	// Spec is the VMI's placement from now on, Changed the paths, below spec.template.spec, that differ in it.
	Spec    Placement
	Changed []string
	// Refused says by path, below spec.template.spec, why the guest has it only when it is started again.
	Refused map[string]string
}

// Place compares the present template with the VMI. live says whether the installation changes running guests. For a
// VMI made by a controller that counted the placement in the template's hash, that hash shows changes.
func Place(template *v1.VirtualMachineInstanceSpec, instance *v1.VirtualMachineInstance, live bool) Placing {
	want, has := PlacementOf(template), PlacementOf(&instance.Spec)
	out := Placing{Spec: has, Refused: map[string]string{}}
	if !placementKnown(instance) {
		return out
	}
	for _, path := range want.unlike(has) {
		if live {
			out.Spec, out.Changed = want, append(out.Changed, path)
		} else {
			out.Refused[path] = noteStaged
		}
	}
	return out
}

// unlike returns the paths at which two differ.
func (p Placement) unlike(other Placement) (paths []string) {
	if !equality.Semantic.DeepEqual(p.NodeSelector, other.NodeSelector) {
		paths = append(paths, selectorPath)
	}
	if !equality.Semantic.DeepEqual(p.Affinity, other.Affinity) {
		paths = append(paths, affinityPath)
	}
	if !equality.Semantic.DeepEqual(p.Tolerations, other.Tolerations) {
		paths = append(paths, tolerationsPath)
	}
	return paths
}

// placementKnown reports whether the template's hash of a VMI leaves the placement out.
func placementKnown(instance *v1.VirtualMachineInstance) bool {
	return strings.HasPrefix(instance.Annotations[TemplateHashAnnotation], placed)
}

// OfPlacement reports a field, below spec.template.spec, that says on which nodes the guest may be.
func OfPlacement(path string) bool { return covered(path, placementPaths) }

func covered(path string, by []string) bool {
	return slices.ContainsFunc(by, func(of string) bool { return Within(path, of) })
}

// Covers reports a field of the placement that the guest has, or gets while it runs.
func (p Placing) Covers(instance *v1.VirtualMachineInstance, path string) bool {
	return placementKnown(instance) && OfPlacement(path) && !covered(path, slices.Collect(maps.Keys(p.Refused)))
}
