package vmcontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// attach sets interfaces and networks of a spec from YAML.
func attach(t *testing.T, spec *v1.VirtualMachineInstanceSpec, text string) {
	t.Helper()
	var a rollout.Attachments
	if err := yaml.UnmarshalStrict([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	spec.Domain.Devices.Interfaces, spec.Networks = a.Interfaces, a.Networks
}

// TestPlug: what becomes of a change of a VM's interfaces while its guest runs.
func TestPlug(t *testing.T) {
	const (
		pod = `{interfaces: [{name: default, masquerade: {}}], networks: [{name: default, pod: {}}]}`
		red = `{interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}], networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]}`
		asR = `{interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}, model: virtio}], networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]}`
	)
	row := func(name string) func(*v1.VirtualMachineInstance) {
		return func(i *v1.VirtualMachineInstance) {
			i.Status.Interfaces = append(i.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{Name: name})
		}
	}
	stays := with(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse, "DisksNotLiveMigratable")
	connected := func(i *v1.VirtualMachineInstance) {
		i.Status.NodeName, i.Status.ActivePods = "n", map[types.UID]string{"pod": "n"}
	}
	state := func(text, state string) string {
		return strings.Replace(text, "name: red, bridge: {}", "name: red, bridge: {}, state: "+state, 1)
	}
	blue := func(text string) string { return strings.Replace(text, "red-net", "blue-net", 1) }
	for name, tc := range map[string]struct {
		// before is the template that the VMI was made from, instance what the VMI has of it unless the same, template
		// the one of now.
		before, instance, template string
		change                     []func(*v1.VirtualMachineInstance)
		staged                     bool
		// want is what the VMI is to have, and refused what needs a restart.
		want, refused string
	}{
		"the same":        {before: red, template: red, want: red},
		"comes":           {before: pod, template: red, want: asR},
		"no binding":      {before: pod, template: strings.Replace(red, "red, bridge: {}", "red", 1), want: asR},
		"comes unplugged": {before: pod, template: state(red, "absent"), want: pod},
		"comes down":      {before: pod, template: state(red, "down"), want: state(asR, "down")},
		"staged": {
			before: pod, template: red, staged: true, want: pod,
			refused: "domain.devices.interfaces[red]: vmRolloutStrategy is Stage",
		},
		"cannot move": {
			before: pod, template: red, change: []func(*v1.VirtualMachineInstance){stays}, want: pod,
			refused: "domain.devices.interfaces[red]: only another pod has its network, " +
				"and the guest cannot migrate: because",
		},
		"need not move": {
			before: pod, template: red, change: []func(*v1.VirtualMachineInstance){stays, connected}, want: asR,
		},
		"masquerade": {
			before: `{}`, template: pod, want: `{}`,
			refused: "domain.devices.interfaces[default]: it is on the pod network",
		},
		"no network": {
			before: pod, template: strings.Replace(red, "name: red, multus", "name: blue, multus", 1), want: pod,
			refused: "domain.devices.interfaces[red]: no network has its name",
		},
		"changed": {
			before: red, template: strings.Replace(red, "red, bridge: {}", "red, bridge: {}, model: e1000e", 1),
			want: red,
			refused: "domain.devices.interfaces[red]: the guest has it as it was; unplug it first, " +
				"by state: absent, or restart the guest",
		},
		"another network": {before: asR, template: blue(asR), want: blue(asR)},
		"another network, down": {
			before: asR, instance: state(asR, "down"), template: blue(state(asR, "down")),
			want: blue(state(asR, "down")),
		},
		"another network and model": {
			before: red, template: blue(strings.Replace(red, "red, bridge: {}", "red, bridge: {}, model: e1000e", 1)),
			want: red,
			refused: "domain.devices.interfaces[red]: the guest has it as it was; unplug it first, " +
				"by state: absent, or restart the guest",
		},
		"another network, staged": {
			before: red, template: blue(red), staged: true, want: red,
			refused: "domain.devices.interfaces[red]: vmRolloutStrategy is Stage",
		},
		"another network, cannot move": {
			before: red, template: blue(red), change: []func(*v1.VirtualMachineInstance){stays, connected}, want: red,
			refused: "domain.devices.interfaces[red]: only another pod has its network, " +
				"and the guest cannot migrate: because",
		},
		"another network, taken back": {
			before: blue(asR), template: asR, change: []func(*v1.VirtualMachineInstance){stays, connected}, want: asR,
		},
		"another network of a plugin": {
			before:   strings.Replace(red, "bridge: {}", "binding: {name: l2}", 1),
			template: blue(strings.Replace(red, "bridge: {}", "binding: {name: l2}", 1)),
			want:     strings.Replace(red, "bridge: {}", "binding: {name: l2}", 1),
			refused: "domain.devices.interfaces[red]: only interfaces with bridge: {} move to another network " +
				"while the guest runs; restart it",
		},
		"taken out": {
			before: red, template: pod, change: []func(*v1.VirtualMachineInstance){row("red")}, want: red,
			refused: "domain.devices.interfaces[red]: the guest has it still; unplug it first, " +
				"by state: absent, or restart the guest",
		},
		"being unplugged": {
			before: red, instance: state(red, "absent"), template: pod,
			change: []func(*v1.VirtualMachineInstance){row("red")}, want: state(red, "absent"),
		},
		"unplugged, out": {before: red, instance: state(red, "absent"), template: pod, want: pod},
		"unplugged, stays": {
			before: red, instance: state(red, "absent"), template: state(red, "absent"), want: state(red, "absent"),
		},
		"never came, out": {before: red, instance: pod, template: pod, want: pod},
		"comes back soon": {
			before: red, instance: state(red, "absent"), template: red,
			change: []func(*v1.VirtualMachineInstance){row("red")}, want: state(red, "absent"),
		},
		"comes back": {before: red, instance: state(red, "absent"), template: red, want: asR},
		"comes back other": {
			before: red, instance: state(red, "absent"), template: strings.Replace(red, "red-net", "blue-net", 1),
			want: strings.Replace(asR, "red-net", "blue-net", 1),
		},
	} {
		vm := testVM(v1.RunStrategyAlways)
		attach(t, &vm.Spec.Template.Spec, tc.before)
		instance, err := Instance(vm, false)
		if err != nil {
			t.Fatal(err)
		}
		instance.Status.Phase = v1.Running
		if tc.instance != "" {
			attach(t, &instance.Spec, tc.instance)
		}
		for _, change := range tc.change {
			change(instance)
		}
		vm = vm.DeepCopy()
		vm.Generation++
		attach(t, &vm.Spec.Template.Spec, tc.template)
		attached := &corev1.Pod{}
		attached.UID, attached.Spec.NodeName = "pod", "n"
		attached.Annotations = map[string]string{
			"k8s.v1.cni.cncf.io/networks": `[{"name":"red-net","namespace":"default","interface":"podb1f51a511f1"}]`,
		}
		view := View{VM: vm, VMI: instance, Pods: []*corev1.Pod{attached}, Staged: tc.staged}
		p := view.plugging()
		refused := ""
		for path, why := range p.Refused {
			refused += path + ": " + why
		}
		if refused != tc.refused {
			t.Errorf("%s: refused %q, want %q", name, refused, tc.refused)
		}
		var want v1.VirtualMachineInstanceSpec
		attach(t, &want, tc.want)
		got, expected := encoded(t, p.Spec),
			encoded(t, rollout.Attachments{Interfaces: want.Domain.Devices.Interfaces, Networks: want.Networks})
		if got != expected {
			t.Errorf("%s: the VMI has %s, want %s", name, got, expected)
		}
		if required := restartRequired(view); required != (tc.refused != "") {
			t.Errorf("%s: restart required: %v", name, required)
		}
		// Once it is taken over nothing is left to do.
		instance = instance.DeepCopy()
		instance.Annotations[rollout.InterfacesAnnotation] = encoded(t, p.Taken)
		instance.Spec.Domain.Devices.Interfaces, instance.Spec.Networks = p.Spec.Interfaces, p.Spec.Networks
		view.VMI = instance
		if again := view.plugging(); encoded(t, again.Taken) != encoded(t, p.Taken) || encoded(t, again.Spec) != got {
			t.Errorf("%s: a second time it is %s", name, encoded(t, again.Spec))
		}
	}
}

func encoded(t *testing.T, a rollout.Attachments) string {
	t.Helper()
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPlugAndRestart: a new interface needs no restart, what was changed with it does, and only that is named.
func TestPlugAndRestart(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	made, err := Instance(vm, false)
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = v1.Running
	vm = vm.DeepCopy()
	vm.Generation++
	attach(t, &vm.Spec.Template.Spec,
		`{interfaces: [{name: red, bridge: {}}], networks: [{name: red, multus: {networkName: net}}]}`)
	if got := status(t, View{VM: vm, VMI: made}); conditionsOf(got)["RestartRequired"] != "" {
		t.Errorf("%+v", got.Conditions)
	}
	if RestartRequired(vm, made) {
		t.Error("a new interface needs a restart, seen from outside")
	}
	vm.Spec.Template.Spec.Domain.CPU.Cores = 3
	if got, want := restartMessage(View{
		VM: vm, VMI: made,
	}), "a non-live-updatable field was changed in the template spec: "+
		"spec.template.spec.domain.cpu.cores"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A VMI of a controller that did not write down what it took over.
	delete(made.Annotations, rollout.InterfacesAnnotation)
	made.Annotations[rollout.TemplateHashAnnotation], err = rollout.TemplateHash(
		&testVM(v1.RunStrategyAlways).Spec.Template.Spec, false,
		rollout.Counted{Attachments: true})
	if err != nil {
		t.Fatal(err)
	}
	vm.Spec.Template.Spec.Domain.CPU.Cores = 2
	if got, want := restartMessage(View{
		VM: vm, VMI: made,
	}), "a non-live-updatable field was changed in the template spec: "+
		"spec.template.spec.domain.devices.interfaces[red], spec.template.spec.networks[red]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !restartRequired(View{VM: vm, VMI: made}) {
		t.Error("no restart required of an old VMI")
	}
	with(v1.VirtualMachineInstanceMigrationRequired, corev1.ConditionTrue, "")(made)
	with(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse, "")(made)
	if got := restartMessage(View{VM: vm, VMI: made}); !strings.HasPrefix(got,
		"the guest cannot be given its new interfaces or networks while it runs: ") {
		t.Errorf("%q", got)
	}
}

// An interface does not move to another network while there is a pod to which the guest is to migrate: that pod is
// connected to the network of before. An interface that comes does not wait.
func TestMovesWaitForMigration(t *testing.T) {
	const (
		none = `{interfaces: [{name: default, masquerade: {}}], networks: [{name: default, pod: {}}]}`
		red  = `{interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}], networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]}`
	)
	target := func(phase corev1.PodPhase) *corev1.Pod {
		pod := &corev1.Pod{}
		pod.UID, pod.Labels, pod.Status.Phase = "target", map[string]string{v1.MigrationJobLabel: "m"}, phase
		return pod
	}
	blue := strings.Replace(red, "red-net", "blue-net", 1)
	sends := &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "n2"}
	for name, tc := range map[string]struct {
		before, template string
		pods             []*corev1.Pod
		state            *v1.VirtualMachineInstanceMigrationState
		want             bool
	}{
		"moves":                         {red, blue, nil, nil, true},
		"moves, and a target waits":     {red, blue, []*corev1.Pod{target("Pending")}, nil, false},
		"moves, and a target has ended": {red, blue, []*corev1.Pod{target("Failed")}, nil, true},
		"moves, and its nodes know":     {red, blue, nil, sends, false},
		"comes, and a target waits":     {none, red, []*corev1.Pod{target("Pending")}, nil, true},
	} {
		vm := testVM(v1.RunStrategyAlways)
		attach(t, &vm.Spec.Template.Spec, tc.before)
		instance, err := Instance(vm, false)
		if err != nil {
			t.Fatal(err)
		}
		instance.Status.Phase, instance.Status.MigrationState = v1.Running, tc.state
		vm = vm.DeepCopy()
		vm.Generation++
		attach(t, &vm.Spec.Template.Spec, tc.template)
		view := View{VM: vm, VMI: instance, Pods: tc.pods}
		if got, err := view.followInterfaces(); err != nil || got != tc.want {
			t.Errorf("%s: the VMI follows %v, %v", name, got, err)
		}
	}
}
