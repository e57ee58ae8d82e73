package evacuate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func node(name, memory string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1.NodeSchedulable: "true", corev1.LabelHostname: name},
		},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse("4"),
				corev1.ResourcePods: resource.MustParse("110"),
			},
		},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

// add puts a guest with 1 GiB on node one.
func add(f *Facts, name string, strategy v1.EvictionStrategy,
	change ...func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine),
) {
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	vmi.Spec.EvictionStrategy = &strategy
	vmi.Status = v1.VirtualMachineInstanceStatus{
		Phase: v1.Running, NodeName: "one", ActivePods: map[types.UID]string{types.UID("pod-" + name): "one"},
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		},
	}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "virt-launcher-" + name, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{NodeName: "one", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("1Gi"),
				corev1.ResourceCPU:    resource.MustParse("100m"),
			},
		}}}},
	}
	always := v1.RunStrategyAlways
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("vm-" + name)},
		Spec:       v1.VirtualMachineSpec{RunStrategy: &always},
	}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	for _, c := range change {
		c(&vmi, &pod, vm)
	}
	f.VMIs, f.Pods = append(f.VMIs, vmi), append(f.Pods, pod)
	f.VMs["ns/"+name] = vm
}

func tied(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
	vmi.Status.Conditions[0].Status, vmi.Status.Conditions[0].Message = corev1.ConditionFalse, "it is bridged"
}

func manual(_ *v1.VirtualMachineInstance, _ *corev1.Pod, vm *v1.VirtualMachine) {
	*vm.Spec.RunStrategy = v1.RunStrategyManual
}

func TestPlan(t *testing.T) {
	f := Facts{Node: "one", VMs: map[string]*v1.VirtualMachine{}, Nodes: []corev1.Node{
		node("one", "16Gi"), node("two", "2560Mi"), node("three", "1Gi"),
		node("full", "16Gi", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
	}}
	add(&f, "a-moves", v1.EvictionStrategyLiveMigrate)
	add(&f, "b-moves", v1.EvictionStrategyLiveMigrateIfPossible)
	add(&f, "c-moves", v1.EvictionStrategyLiveMigrate)
	add(&f, "d-waits", v1.EvictionStrategyLiveMigrate)
	add(&f, "e-stays", v1.EvictionStrategyLiveMigrate, tied)
	add(&f, "f-restarts", v1.EvictionStrategyLiveMigrateIfPossible, tied)
	add(&f, "g-ends", v1.EvictionStrategyNone, manual)
	add(&f, "h-marked", v1.EvictionStrategyExternal)
	add(&f, "i-ends", v1.EvictionStrategyNone,
		func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) { vmi.OwnerReferences = nil })
	add(&f, "j-restarts", v1.EvictionStrategyNone)
	add(&f, "k-restarts", v1.EvictionStrategyNone,
		func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
			vmi.Spec.EvictionStrategy = nil
		})
	add(&f, "over", v1.EvictionStrategyNone, func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
		vmi.Status.Phase = v1.Failed
	})

	r := NewPlan(f)
	if !r.Planned || r.Cordoned || len(r.Guests) != 11 {
		t.Fatalf("report %+v", r)
	}
	targets := map[string]int{}
	for i, want := range []struct {
		outcome Outcome
		reason  string
	}{
		{Moves, ""},
		{Moves, ""},
		{Moves, ""},
		{Waits, "no other node"},
		{Stays, "it is bridged"},
		{Restarts, "it cannot move: it is bridged"},
		{Ends, "run strategy Manual"},
		{Marked, "External"},
		{Ends, "no VirtualMachine"},
		{Restarts, "it is shut down, since its eviction strategy is None; no other node would take it now"},
		{Restarts, "it is shut down, since it has no eviction strategy and the cluster's is None"},
	} {
		g := r.Guests[i]
		if g.Outcome != want.outcome || !strings.Contains(g.Reason, want.reason) ||
			want.reason == "" && g.Reason != "" {
			t.Errorf("%s: %s, %q", g.Name, g.Outcome, g.Reason)
		}
		targets[g.Target]++
	}
	if targets["two"] != 2 || targets["three"] != 1 || targets["full"] != 0 {
		t.Errorf("targets %v", targets)
	}
	if refusals := r.Guests[3].Refusals; len(refusals) != 3 || refusals[0].Reason != "it is cordoned" ||
		!strings.Contains(refusals[1].Reason, "memory left") {
		t.Errorf("refusals %+v", refusals)
	}
}

func TestRefuses(t *testing.T) {
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
	}
	for name, tc := range map[string]struct {
		node func(*corev1.Node)
		pod  func(*corev1.Pod)
		want string
	}{
		"fits":     {nil, nil, ""},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, nil, "it is cordoned"},
		"tainted":  {tainted, nil, "the VM does not tolerate its taint a=b:NoSchedule"},
		"selector": {
			nil, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"k": "v"} }, "it has not the label k=v",
		},
		"memory": {nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("3Gi")
		}, "it has 2Gi of memory left, and the VM's pod asks for 3Gi"},
		"init container": {nil, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")},
					},
				},
			}
		}, "it has 4 of cpu left, and the VM's pod asks for 5"},
		"sidecar": {nil, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{
					RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1536Mi")},
					},
				},
			}
		}, "it has 2Gi of memory left, and the VM's pod asks for 2560Mi"},
		"device": {
			nil, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["x/kvm"] = resource.MustParse("1") },
			"it has 0 of x/kvm left, and the VM's pod asks for 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("two", "2Gi")
			if tc.node != nil {
				tc.node(&n)
			}
			f := Facts{VMs: map[string]*v1.VirtualMachine{}}
			add(&f, "a", v1.EvictionStrategyNone)
			pod := &f.Pods[0]
			if tc.pod != nil {
				tc.pod(pod)
			}
			got := newCapacities([]corev1.Node{n}, nil)[0].refuses(&f.VMIs[0], pod, requests(pod), nil)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What a pod takes of its node: a sidecar runs beside the containers, and a pod that is being resized has the greater
// of its sizes.
func TestReserved(t *testing.T) {
	memory := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	container := func(name, size string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: memory(size)}}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a container": {func(*corev1.Pod) {}, "1Gi"},
		"a sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("log", "1Gi")}
			p.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}, "2Gi"},
		"an init container": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("first", "3Gi")}
		}, "3Gi"},
		"overhead": {func(p *corev1.Pod) { p.Spec.Overhead = memory("512Mi") }, "1536Mi"},
		"shrinks": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "compute", AllocatedResources: memory("2Gi")},
			}
		}, "2Gi"},
		"has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "0"},
	} {
		pod := corev1.Pod{Spec: corev1.PodSpec{
			NodeName: "one", Containers: []corev1.Container{container("compute", "1Gi")},
		}}
		test.change(&pod)
		left := newCapacities([]corev1.Node{node("one", "16Gi")}, []corev1.Pod{pod})[0].free[corev1.ResourceMemory]
		want := resource.MustParse("16Gi")
		want.Sub(resource.MustParse(test.want))
		if left.Cmp(want) != 0 {
			t.Errorf("%s: %s left, want %s", name, left.String(), want.String())
		}
	}
}

// onDisk gives a guest a disk that only its node has.
func onDisk(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
	tied(vmi, nil, nil)
	vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "a")}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "a", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
}

// Disks are brought for guests that are to move and cannot without: where the VM has opted in, or with --with-disks.
func TestPlanWithDisks(t *testing.T) {
	optedIn := func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
		vmi.Annotations = map[string]string{volumemigration.OptInAnnotation: "true"}
	}
	shareable := func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
		vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true)
	}
	for name, c := range map[string]struct {
		strategy v1.EvictionStrategy
		change   []func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine)
		// without and with are its outcomes.
		without, with Outcome
		brings, asked bool
	}{
		"a disk":             {v1.EvictionStrategyLiveMigrate, nil, Stays, Moves, true, true},
		"if possible":        {v1.EvictionStrategyLiveMigrateIfPossible, nil, Restarts, Moves, true, true},
		"is to be shut down": {v1.EvictionStrategyNone, nil, Restarts, Restarts, false, false},
		"opted in": {
			v1.EvictionStrategyLiveMigrate,
			[]func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine){optedIn},
			Moves, Moves, true, false,
		},
		"shareable": {
			v1.EvictionStrategyLiveMigrate,
			[]func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine){shareable},
			Stays, Stays, false, false,
		},
	} {
		f := Facts{
			Node: "one", VMs: map[string]*v1.VirtualMachine{},
			Nodes: []corev1.Node{node("one", "8Gi"), node("two", "8Gi")},
		}
		add(&f, "vm", c.strategy,
			append([]func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine){onDisk}, c.change...)...)
		if g := NewPlan(f).Guests[0]; g.Outcome != c.without || g.bring {
			t.Errorf("%s: %+v", name, g)
		}
		f.WithDisks = true
		if g := NewPlan(f).Guests[0]; g.Outcome != c.with || g.WithDisks != c.brings || g.bring != c.asked {
			t.Errorf("%s, with its disks: %+v", name, g)
		}
	}
}

// onClaim gives a guest a disk on a claim.
func onClaim(claim string) func(*v1.VirtualMachineInstance, *corev1.Pod, *v1.VirtualMachine) {
	return func(_ *v1.VirtualMachineInstance, pod *corev1.Pod, _ *v1.VirtualMachine) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// A guest goes where its volumes can be used, and nowhere when that is only where it is; unless they are copied.
func TestPlanKnowsVolumes(t *testing.T) {
	usable := func(nodes ...string) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes},
			},
		}}}
	}
	plan := func(change func(*Facts)) []Guest {
		f := Facts{
			Node: "one", VMs: map[string]*v1.VirtualMachine{},
			Nodes: []corev1.Node{node("one", "16Gi"), node("two", "16Gi"), node("three", "8Gi")},
			Volumes: map[string]*corev1.NodeSelector{
				"ns/here": usable("one"), "ns/zone": usable("one", "three"), "other/free": usable("one"),
			},
		}
		add(&f, "a-here", v1.EvictionStrategyNone, onClaim("here"))
		add(&f, "b-zone", v1.EvictionStrategyLiveMigrate, onClaim("zone"))
		add(&f, "c-free", v1.EvictionStrategyNone, onClaim("free"))
		add(&f, "d-plugged", v1.EvictionStrategyNone,
			func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod, _ *v1.VirtualMachine) {
				vmi.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
					DataVolume: &v1.DataVolumeSource{Name: "here", Hotpluggable: true},
				}}}
			})
		if change != nil {
			change(&f)
		}
		return NewPlan(f).Guests
	}
	const none = "no other node would take it now"
	for i, want := range []struct {
		outcome  Outcome
		target   string
		stranded bool
	}{{Restarts, "", true}, {Moves, "three", false}, {Restarts, "two", false}, {Restarts, "", true}} {
		g := plan(nil)[i]
		if g.Outcome != want.outcome || g.Target != want.target || g.Stranded() != want.stranded ||
			strings.Contains(g.Reason, none) != want.stranded {
			t.Errorf("%s: %s to %q (%s)", g.Name, g.Outcome, g.Target, g.Reason)
		}
		const refusal = "the volume of claim here cannot be used there"
		if want.stranded && (len(g.Refusals) != 2 || g.Refusals[0].Reason != refusal) {
			t.Errorf("%s: %+v", g.Name, g.Refusals)
		}
	}
	hidden := plan(func(f *Facts) { f.Volumes, f.VolumesHidden = nil, true })
	if g := hidden[0]; g.Target == "" || !strings.Contains(g.Reason, "you may not list persistentvolumes") {
		t.Errorf("without the right: %+v", g)
	}
}
