package vmcontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

const (
	unplaced = "domain: {cpu: {sockets: 2}, memory: {guest: 1Gi}}"
	here     = "\nnodeSelector: {a: b}\ntolerations: [{key: a, operator: Exists}]"
	there    = "\nnodeSelector: {c: d}\naffinity: {nodeAffinity: {}}"
)

// The instance of a guest that runs has the placement of its VM, but while the guest moves, and where nothing is
// changed of guests that run.
func TestFollowPlacement(t *testing.T) {
	migrating := func(start, end bool) func(*View) {
		return func(view *View) {
			state := &v1.VirtualMachineInstanceMigrationState{}
			if start {
				state.StartTimestamp = &metav1.Time{Time: now}
			}
			if end {
				state.EndTimestamp = &metav1.Time{Time: now}
			}
			view.VMI.Status.MigrationState = state
		}
	}
	for name, tc := range map[string]struct {
		before, after string
		view          func(*View)
		// same says that the instance stays as it is, observed that it is of the VM's generation then.
		same, observed, restart bool
	}{
		"comes":       {before: unplaced, after: unplaced + here, observed: true},
		"changes":     {before: unplaced + here, after: unplaced + there, observed: true},
		"goes":        {before: unplaced + there, after: unplaced, observed: true},
		"is the same": {before: unplaced + here, after: unplaced + here, same: true},
		"with more":   {before: unplaced, after: unplaced + there + "\nhostname: x", restart: true},
		"staged": {
			before: unplaced, after: unplaced + here, view: func(view *View) { view.Staged = true }, same: true,
			restart: true,
		},
		"staged, goes": {
			before: unplaced + here, after: unplaced, view: func(view *View) { view.Staged = true }, same: true,
			restart: true,
		},
		"the guest is sent": {before: unplaced, after: unplaced + here, view: migrating(true, false), same: true},
		"a target is prepared": {
			before: unplaced, after: unplaced + here, view: migrating(false, false), observed: true,
		},
		"the guest has moved": {before: unplaced, after: unplaced + here, view: migrating(true, true), observed: true},
		"before it runs": {
			before: unplaced, after: unplaced + here,
			view: func(view *View) { view.VMI.Status.Phase = v1.Scheduling },
		},
		"it has ended": {
			before: unplaced, after: unplaced + here, same: true,
			view: func(view *View) { view.VMI.Status.Phase = v1.Succeeded },
		},
		"it ends": {
			before: unplaced, after: unplaced + here, same: true,
			view: func(view *View) { view.VMI.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"an older controller made it": {
			before: unplaced + here, after: unplaced + there, same: true, restart: true,
			view: func(view *View) {
				was := edited(t, 1, unplaced+here)
				hash, err := rollout.TemplateHash(&was.Spec.Template.Spec, false, rollout.Counted{Placement: true})
				if err != nil {
					t.Fatal(err)
				}
				view.VMI.Annotations[rollout.TemplateHashAnnotation] = hash
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := edited(t, 2, tc.after)
			view := View{VM: is, VMI: admitted(t, edited(t, 1, tc.before), true), Filled: true, Now: now}
			if tc.view != nil {
				tc.view(&view)
			}
			was := view.VMI.DeepCopy()
			step := Next(view)
			if !equality.Semantic.DeepEqual(view.VMI, was) {
				t.Fatal("what was read is changed")
			}
			want := was.Spec.DeepCopy()
			if !tc.same {
				rollout.PlacementOf(&is.Spec.Template.Spec).Apply(want)
			}
			if got := step.After.VMI.Spec; !equality.Semantic.DeepEqual(got, *want) {
				t.Errorf("the instance has %+v", rollout.PlacementOf(&got))
			}
			if (step.VMI != nil) == tc.same {
				t.Errorf("the instance is written: %+v", step.VMI)
			}
			if got := observedGeneration(step.After.VMI) == 2; got != tc.observed {
				t.Errorf("it is of generation %d", observedGeneration(step.After.VMI))
			}
			if tc.view == nil || tc.restart {
				if message := restartOf(status(t, step.After)); (message != "") != tc.restart {
					t.Errorf("RestartRequired is %q", message)
				}
			}
		})
	}
}

// Size, placement and interfaces that are changed at once come at once.
func TestFollowAll(t *testing.T) {
	const (
		before = "domain: {cpu: {sockets: 2}, memory: {guest: 1Gi}, devices: {interfaces: [{name: default, " +
			"masquerade: {}}]}}\nnetworks: [{name: default, pod: {}}]"
		after = "domain: {cpu: {sockets: 4}, memory: {guest: 1Gi}, devices: {interfaces: [{name: default, " +
			"masquerade: {}}, {name: red, bridge: {}}]}}\n" +
			"networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]" + there
	)
	vmi := admitted(t, edited(t, 1, before), true)
	step := Next(View{VM: edited(t, 2, after), VMI: vmi, Filled: true, Now: now})
	got := step.After.VMI
	if got.Spec.Domain.CPU.Sockets != 4 || len(got.Spec.Networks) != 2 || got.Spec.NodeSelector["c"] != "d" ||
		observedGeneration(got) != 2 {
		t.Errorf("generation %d: %+v", observedGeneration(got), got.Spec)
	}
}

// Of a change that waits only the fields are named that wait: the placement comes when the guest has moved.
func TestPlacementIsNotNamed(t *testing.T) {
	vmi := admitted(t, edited(t, 1, unplaced), true)
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: &metav1.Time{Time: now}}
	step := Next(View{VM: edited(t, 2, unplaced+here+"\nhostname: x"), VMI: vmi, Filled: true, Now: now})
	const want = "a non-live-updatable field was changed in the template spec: spec.template.spec.hostname"
	if got := restartOf(status(t, step.After)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What is written is the VM's, and not part of it.
func TestPlacementIsCopied(t *testing.T) {
	is := edited(t, 2, unplaced+here)
	step := Next(View{VM: is, VMI: admitted(t, edited(t, 1, unplaced), true), Filled: true, Now: now})
	step.After.VMI.Spec.NodeSelector["a"] = "other"
	step.After.VMI.Spec.Tolerations[0].Operator = corev1.TolerationOpEqual
	if spec := is.Spec.Template.Spec; spec.NodeSelector["a"] != "b" ||
		spec.Tolerations[0].Operator != corev1.TolerationOpExists {
		t.Errorf("%+v", spec)
	}
}
