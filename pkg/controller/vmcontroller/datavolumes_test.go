package vmcontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func withTemplates(names ...string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		for _, name := range names {
			vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates,
				v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
}

func dataVolume(name string, phase cdiv1.DataVolumePhase, bound bool) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Status: cdiv1.DataVolumeStatus{Phase: phase},
	}
	if bound {
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionTrue}}
	}
	return dv
}

// imported is a VM with a DataVolume that is so far.
func imported(phase cdiv1.DataVolumePhase, bound bool) View {
	return View{
		VM:          testVM(v1.RunStrategyAlways, withTemplates("root")),
		DataVolumes: map[string]*cdiv1.DataVolume{"root": dataVolume("root", phase, bound)},
	}
}

func TestFill(t *testing.T) {
	later := func(vm *v1.VirtualMachine) {
		vm.Annotations = map[string]string{v1.ImmediateDataVolumeCreation: "false"}
	}
	for name, test := range map[string]struct {
		change  func(*v1.VirtualMachine)
		there   []*cdiv1.DataVolume
		claims  map[string]bool
		without bool // CDI
		wanted  bool

		missing, failure string
		filled           bool
	}{
		"nothing there":          {wanted: true, missing: "a b"},
		"nothing there, stopped": {missing: "a b"},
		"made when it starts":    {change: later},
		"made as it starts":      {change: later, wanted: true, missing: "a b"},
		"one there": {
			there: []*cdiv1.DataVolume{dataVolume("a", cdiv1.ImportInProgress, true)}, missing: "b",
		},
		"one not filled": {
			there: []*cdiv1.DataVolume{
				dataVolume("a", cdiv1.ImportInProgress, true), dataVolume("b", cdiv1.Succeeded, true),
			},
		},
		"filled": {
			there:  []*cdiv1.DataVolume{dataVolume("a", cdiv1.Succeeded, true), dataVolume("b", cdiv1.Succeeded, true)},
			filled: true,
		},
		"filled with their pod": {
			there: []*cdiv1.DataVolume{
				dataVolume("a", cdiv1.WaitForFirstConsumer, false), dataVolume("b", cdiv1.PendingPopulation, false),
			},
			filled: true,
		},
		"failed": {
			there:   []*cdiv1.DataVolume{dataVolume("a", cdiv1.Failed, true), dataVolume("b", cdiv1.Succeeded, true)},
			failure: `FailedDataVolumeImport: DataVolume "a": CDI could not fill it`,
		},
		"claims without them": {claims: map[string]bool{"a": true, "b": true}, filled: true},
		"no CDI": {
			without: true, claims: map[string]bool{"a": true},
			failure: `CDINotInstalled: spec.dataVolumeTemplates: DataVolume "b" cannot be made`,
		},
		"no CDI, but their claims": {without: true, claims: map[string]bool{"a": true, "b": true}, filled: true},
	} {
		t.Run(name, func(t *testing.T) {
			view := &View{
				VM: testVM(v1.RunStrategyAlways, withTemplates("a", "b")), DataVolumes: map[string]*cdiv1.DataVolume{},
				Filled: true,
			}
			if test.change != nil {
				test.change(view.VM)
			}
			for _, dv := range test.there {
				view.DataVolumes[dv.Name] = dv
			}
			var missing []string
			for _, template := range view.fill(test.claims, !test.without, test.wanted) {
				missing = append(missing, template.Name)
			}
			if got := strings.Join(missing, " "); got != test.missing || view.Filled != test.filled {
				t.Errorf("missing %q, filled %v", got, view.Filled)
			}
			if got := view.FailureReason + ": " + view.Failure; !strings.HasPrefix(got, test.failure) ||
				test.failure == "" && view.Failure != "" {
				t.Errorf("failure %s", got)
			}
		})
	}
}
