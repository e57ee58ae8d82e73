package poolcontroller

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/controller/vmcontroller"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// newPool is a pool of three whose template is of its third generation; more is YAML of its spec.
func newPool(t *testing.T, more string) *v1beta1.VirtualMachinePool {
	t.Helper()
	p := &v1beta1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "pool", Generation: 3},
	}
	p.Spec.Replicas = new(int32(3))
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	p.Spec.VirtualMachineTemplate = templateOf("3")
	if err := yaml.UnmarshalStrict([]byte(more), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// templateOf is the template of a revision: 1 and 2 differ from 3 in the guest's CPUs, "labels" in the instance's
// labels only, "vm" in the VM's only, "disks" in the DataVolumes.
func templateOf(revision string) *v1beta1.VirtualMachineTemplateSpec {
	out := &v1beta1.VirtualMachineTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyAlways),
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{CPU: &v1.CPU{Cores: 3}}},
			},
		},
	}
	switch revision {
	case "1":
		out.Spec.Template.Spec.Domain.CPU.Cores = 1
	case "2":
		out.Spec.Template.Spec.Domain.CPU.Cores = 2
	case "labels":
		out.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "b"}
	case "vm":
		out.ObjectMeta.Labels["a"] = "b"
	case "disks":
		out.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root"}}}
	}
	return out
}

var revisions = map[string]*pools.Template{}

func init() {
	for _, name := range []string{"1", "2", "3", "labels", "vm", "disks"} {
		revisions["web-"+name] = &pools.Template{VirtualMachineTemplate: templateOf(name)}
	}
}

// machine is one of the pool's by a few words: its name, its revision and its guest's, and what is so of it.
func machine(t *testing.T, text string) Machine {
	t.Helper()
	words := strings.Fields(text)
	p := newPool(t, "")
	m := Machine{Ordinal: -1}
	revision := "3"
	for _, word := range words[1:] {
		if value, ok := strings.CutPrefix(word, "rev="); ok {
			revision = value
		}
	}
	guest := revision
	ordinal, ok := pools.Ordinal("web", words[0])
	if ok {
		m.Ordinal = ordinal
	}
	of := templateOf(revision)
	m.VM = pools.Machine(p, &pools.Template{VirtualMachineTemplate: of}, max(ordinal, 0), "web-"+revision)
	m.VM.Name, m.VM.UID, m.VM.Generation = words[0], types.UID("uid-"+words[0]), 1
	m.VM.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	m.VM.Status.PrintableStatus = v1.VirtualMachineStatusRunning
	ready, hasGuest, failing := true, true, false
	since := time.Hour
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		ago, _ := time.ParseDuration(value)
		switch key {
		case "rev":
		case "guest":
			guest = value
		case "unready":
			ready = false
		case "since":
			since = ago
		case "stopped":
			hasGuest, ready, m.VM.Status.PrintableStatus = false, false, v1.VirtualMachineStatusStopped
		case "failing": // as one whose preference is not there
			hasGuest, ready, failing, m.VM.Status.PrintableStatus = false, false, true, v1.VirtualMachineStatusStopped
		case "new":
			hasGuest, ready, m.VM.Status.PrintableStatus = false, false, ""
		case "age":
			m.VM.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		case "deleted":
			m.VM.DeletionTimestamp = &metav1.Time{Time: now}
		case "other":
			m.VM.Labels["app"] = "other"
		case "label":
			m.VM.Labels["label"] = value
		case "node":
			m.VM.Spec.Template.Spec.NodeSelector = map[string]string{"node": value}
		case "asked":
			m.VM.Status.StateChangeRequests = Restart("x")
		case "strategy":
			m.VM.Spec.RunStrategy = new(v1.VirtualMachineRunStrategy(value))
		case "failures":
			m.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{ConsecutiveFailCount: len(value)}
		case "status":
			m.VM.Status.PrintableStatus = v1.VirtualMachinePrintableStatus(value)
		default:
			t.Fatal(word)
		}
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	m.VM.Status.Conditions = []v1.VirtualMachineCondition{
		{Type: v1.VirtualMachineReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-since))},
	}
	if failing {
		m.VM.Status.Conditions = append(m.VM.Status.Conditions,
			v1.VirtualMachineCondition{Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue})
	}
	if !hasGuest {
		return m
	}
	made := m.VM.DeepCopy()
	made.Spec.Template = pools.Machine(p, &pools.Template{VirtualMachineTemplate: templateOf(guest)}, max(ordinal, 0),
		"web-"+guest).Spec.Template
	made.Spec.Template.Spec.NodeSelector = m.VM.Spec.Template.Spec.NodeSelector
	instance, err := vmcontroller.Instance(made, false)
	if err != nil {
		t.Fatal(err)
	}
	m.VM.Generation = 2 // so that the template is looked at
	instance.UID, instance.Status.Phase = types.UID("vmi-"+words[0]), v1.Running
	instance.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceReady, Status: status},
	}
	m.VMI = instance
	return m
}

func machines(t *testing.T, texts ...string) []Machine {
	t.Helper()
	var out []Machine
	for _, text := range texts {
		out = append(out, machine(t, text))
	}
	return out
}

// words is a step in a few words.
func (s Step) words() string {
	var out []string
	say := func(what string, names ...string) {
		if len(names) > 0 {
			out = append(out, what+" "+strings.Join(names, " "))
		}
	}
	vms := func(all []*v1.VirtualMachine) (names []string) {
		for _, vm := range all {
			names = append(names, vm.Name)
		}
		return names
	}
	of := func(all []Machine) (names []string) {
		for _, m := range all {
			names = append(names, m.VM.Name)
		}
		return names
	}
	if s.MakeRevision {
		say("revision", s.Revision)
	}
	say("release", vms(s.Release)...)
	var ordinals []string
	for _, ordinal := range s.Create {
		ordinals = append(ordinals, fmt.Sprint(ordinal))
	}
	say("create", ordinals...)
	say("delete", vms(s.Delete)...)
	say("heal", vms(s.Heal)...)
	say("replace", vms(s.Replace)...)
	var updates []string
	for _, update := range s.Update {
		updates = append(updates, update.VM.Name)
	}
	say("update", updates...)
	say("restart", of(s.Restart)...)
	say("relabel", of(s.Relabel)...)
	if s.RequeueAfter > 0 {
		say("again in", s.RequeueAfter.String())
	}
	return strings.Join(out, ", ")
}

func TestNext(t *testing.T) {
	all := []string{"web-0", "web-1", "web-2"}
	old := []string{"web-0 guest=1", "web-1 guest=1", "web-2 guest=1"}
	for name, tc := range map[string]struct {
		spec     string
		machines []string
		change   func(*v1beta1.VirtualMachinePool)
		want     string
	}{
		// how many
		"empty":                       {want: "create 0 1 2"},
		"as it should be":             {machines: all},
		"one by default":              {spec: "replicas: null", want: "create 0"},
		"a gap":                       {machines: []string{"web-0", "web-2"}, want: "create 1"},
		"another's name":              {spec: "replicas: 5", machines: all, want: "create 3 5"}, // web-4 is taken
		"a name that is not free yet": {machines: []string{"web-0", "web-1 deleted", "web-2"}},
		"one that left": {
			machines: []string{"web-0", "web-1 other", "web-2"}, want: "release web-1, create 3",
		},
		"a burst at most": {
			spec: "replicas: 1000", change: func(p *v1beta1.VirtualMachinePool) { p.Name = "big" },
			want: "create" + numbers(250),
		},
		"paused": {spec: "paused: true", machines: []string{"web-0 rev=1", "web-1 other"}, want: "release web-1"},
		"being deleted": {
			machines: []string{"web-0 other"},
			change:   func(p *v1beta1.VirtualMachinePool) { p.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"too many": {spec: "replicas: 1", machines: all, want: "delete web-2 web-1"}, // the order of the test's Shuffle
		"too many, one goes already": {
			spec: "replicas: 1", machines: []string{"web-0", "web-1 deleted", "web-2"}, want: "delete web-2",
		},
		"too many, descending": {
			spec:     "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: DescendingOrder}}}}",
			machines: []string{"web-2", "web-0", "web-10"}, want: "delete web-10 web-2",
		},
		"too many, ascending": {
			spec:     "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: AscendingOrder}}}}",
			machines: []string{"web-2", "web-0", "web-10"}, want: "delete web-0 web-2",
		},
		"too many, the oldest": {
			spec:     "{replicas: 2, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: Oldest}}}}",
			machines: []string{"web-0", "web-1 age=2h", "web-2"}, want: "delete web-1",
		},
		"too many, the newest": {
			spec:     "{replicas: 2, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: Newest}}}}",
			machines: []string{"web-0", "web-1 age=5m", "web-2"}, want: "delete web-1",
		},
		"too many, those with a label": {
			spec: "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: " +
				"{matchLabels: {label: x}}}}}}}",
			machines: []string{"web-0", "web-1 label=x", "web-2"}, want: "delete web-1",
		},
		"too many, those on nodes": {
			spec: "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {selectors: " +
				"{nodeSelectorRequirementMatcher: [{key: node, operator: In, values: [a]}]}}}}}",
			machines: []string{"web-0 node=b", "web-1", "web-2 node=a"}, want: "delete web-2",
		},
		"too many, both selectors": {
			spec: "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: " +
				"{matchLabels: {label: x}}, nodeSelectorRequirementMatcher: [{key: node, operator: Exists}]}}}}}",
			machines: []string{"web-0 label=x", "web-1 node=a", "web-2 label=x node=a"}, want: "delete web-2",
		},
		"too many, unmanaged":     {spec: "{replicas: 1, scaleInStrategy: {unmanaged: {}}}", machines: all},
		"too many, opportunistic": {spec: "{replicas: 1, scaleInStrategy: {opportunistic: {}}}", machines: all},
		"too few, unmanaged": {
			spec: "{scaleInStrategy: {unmanaged: {}}}", machines: []string{"web-0", "web-1"}, want: "create 2",
		},
		"too many, none is also an answer": {spec: "replicas: 0", machines: []string{"web-0"}, want: "delete web-0"},

		// templates
		"a new template": {machines: all, change: change, want: "revision web-3, again in 1s"},
		"a template that was": {
			machines: []string{"web-0", "web-1", "web-2"},
			change: func(p *v1beta1.VirtualMachinePool) {
				p.Generation, p.Spec.VirtualMachineTemplate = 4, templateOf("1")
			},
			want: "update web-2 web-1 web-0",
		},
		"VMs of another revision":      {machines: []string{"web-0 rev=1", "web-1", "web-2"}, want: "update web-0"},
		"of one nobody knows":          {machines: []string{"web-0 rev=9", "web-1", "web-2"}, want: "update web-0"},
		"without a revision's name":    {machines: []string{"web-0", "web-1", "odd rev=1"}},
		"guests of another revision":   {machines: old, want: "restart web-2 web-1 web-0"},
		"of one nobody knows, a guest": {machines: []string{"web-0 guest=9", "web-1", "web-2"}, want: "restart web-0"},
		"other labels": {
			machines: []string{"web-0 guest=labels", "web-1", "web-2"}, want: "restart web-0",
		},
		"other labels of the VM only": {machines: []string{"web-0 guest=vm", "web-1", "web-2"}, want: "relabel web-0"},
		"opportunistic": {
			spec: "updateStrategy: {opportunistic: {}}", machines: []string{"web-0 guest=1", "web-1 rev=1", "web-2"},
			want: "update web-1",
		},
		"unmanaged": {
			spec: "updateStrategy: {unmanaged: {}}", machines: []string{"web-0 guest=1", "web-1 rev=1", "web-2"},
		},
		"one at a time": {spec: "maxUnavailable: 1", machines: old, want: "restart web-2"},
		"one is away": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 unready", "web-2 guest=1"},
		},
		"one is away and outdated": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 unready guest=1", "web-2 guest=1"},
			want: "restart web-1",
		},
		"one is about to be away": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 guest=1 asked", "web-2 guest=1"},
		},
		"one has just been made": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 new", "web-2 guest=1"},
		},
		"one was stopped": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 stopped", "web-2 guest=1"},
			want: "restart web-2",
		},
		"one cannot start": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 guest=1", "web-1 failing", "web-2 guest=1"},
		},
		"two thirds":       {spec: "maxUnavailable: 67%", machines: old, want: "restart web-2 web-1"},
		"a percent is one": {spec: "maxUnavailable: 1%", machines: old, want: "restart web-2"},
		"in order": {
			spec: "{maxUnavailable: 1, updateStrategy: {proactive: {selectionPolicy: " +
				"{sortPolicy: AscendingOrder}}}}",
			machines: old, want: "restart web-0",
		},
		"those selected": {
			spec: "{updateStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: " +
				"{matchLabels: {label: x}}}}}}}",
			machines: []string{"web-0 guest=1", "web-1 guest=1 label=x", "web-2 rev=1"}, want: "restart web-1",
		},
		"one that runs once": {machines: []string{"web-0 guest=1 strategy=Once", "web-1", "web-2"}},
		"other disks": {
			spec: "maxUnavailable: 1", machines: []string{"web-0 rev=disks", "web-1 rev=disks", "web-2"},
			want: "replace web-1",
		},
		"other disks, opportunistic": {
			spec: "updateStrategy: {opportunistic: {}}", machines: []string{"web-0 rev=disks", "web-1", "web-2"},
			want: "update web-0",
		},
		"other disks, stopped": {
			spec:     "maxUnavailable: 1",
			machines: []string{"web-0 rev=disks stopped", "web-1 rev=disks stopped", "web-2 rev=disks"},
			want:     "replace web-2 web-1 web-0",
		},
		"too many are not updated": {
			spec:     "{replicas: 2, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: DescendingOrder}}}}",
			machines: []string{"web-0 rev=1", "web-1", "web-2 rev=1"}, want: "delete web-2, update web-0",
		},

		// health
		"fails too often": {
			spec: "autohealing: {}", machines: []string{"web-0", "web-1 failures=xxx new", "web-2 failures=xx new"},
			want: "heal web-1",
		},
		"fails often enough": {
			spec:     "autohealing: {startUpFailureThreshold: 2}",
			machines: []string{"web-0", "web-1 failures=xxx new", "web-2 failures=xx new"}, want: "heal web-1 web-2",
		},
		"is in trouble for long": {
			spec: "autohealing: {}",
			machines: []string{
				"web-0", "web-1 unready status=ErrorUnschedulable since=6m",
				"web-2 unready status=ErrImagePull since=3m",
			},
			want: "heal web-1, again in 2m0s",
		},
		"is in trouble for longer": {
			spec:     "autohealing: {minFailingToStartDuration: 3m}",
			machines: []string{"web-0", "web-1", "web-2 unready status=CrashLoopBackOff since=3m"}, want: "heal web-2",
		},
		"starts for long": {
			spec: "autohealing: {}", machines: []string{"web-0", "web-1 unready status=Starting since=6m", "web-2"},
		},
		"no healing": {machines: []string{"web-0", "web-1 unready status=ErrorUnschedulable failures=xxx", "web-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, tc.spec)
			if tc.change != nil {
				tc.change(p)
			}
			view := View{
				Pool: p, Selector: labels.SelectorFromSet(p.Spec.Selector.MatchLabels),
				Machines: machines(t, tc.machines...),
				Taken:    map[string]bool{"web-4": true}, Revisions: maps.Clone(revisions), Now: now,
				Shuffle: func(n int, swap func(i, j int)) { // the other way round
					for i := range n / 2 {
						swap(i, n-1-i)
					}
				},
			}
			step := Next(view)
			if got := step.words(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if len(step.Create) > 0 && !lacks(view) {
				t.Error("VMs are made of which the reconciler would not have looked up whose names are taken")
			}
		})
	}
}

// change gives a pool a template that none of its revisions has.
func change(p *v1beta1.VirtualMachinePool) {
	p.Spec.VirtualMachineTemplate.Spec.Template.Spec.Domain.CPU.Cores = 7
}

func numbers(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, " %d", i)
	}
	return out.String()
}

func TestPrune(t *testing.T) {
	p := newPool(t, "")
	got := Next(View{
		Pool: p, Selector: labels.Everything(),
		Machines:  machines(t, "web-0", "web-1 guest=2", "web-2 rev=vm guest=labels deleted"),
		Revisions: revisions, Now: now,
		Shuffle: func(int, func(i, j int)) {},
	}).Prune
	if diff := cmp.Diff([]string{"web-disks", "web-1"}, got); diff != "" {
		t.Error(diff)
	}
}

// The newest of revisions that say the same is the current one.
func TestCurrentRevision(t *testing.T) {
	same := &pools.Template{VirtualMachineTemplate: templateOf("3")}
	name, missing := currentRevision(View{
		Pool: newPool(t, ""), Revisions: map[string]*pools.Template{"web-9": same, "web-10": same, "web-11": nil},
	})
	if name != "web-10" || missing {
		t.Errorf("%s, missing %t", name, missing)
	}
}

func TestChange(t *testing.T) {
	p := newPool(t, "")
	from := pools.Machine(p, &pools.Template{VirtualMachineTemplate: templateOf("1")}, 0, "web-1")
	from.Labels["gone"], from.Annotations = "x", map[string]string{"gone": "x"}
	to := pools.Machine(p, &pools.Template{VirtualMachineTemplate: templateOf("3")}, 0, "web-3")
	current := from.DeepCopy()
	current.UID, current.ResourceVersion = "uid", "7"
	current.Labels["mine"] = "stays"
	current.Spec.Template.Spec.Architecture = "amd64"
	current.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "u"}
	patch, err := Change(current, from, to)
	if err != nil {
		t.Fatal(err)
	}
	want :=
		`{"metadata":{"annotations":null,"labels":{"gone":null,"kubevirt.io/vm-pool-revision-name":"web-3"},"resourceVersion":"7","uid":"uid"},` +
			`"spec":{"template":{"metadata":{"labels":{"kubevirt.io/vm-pool-revision-name":"web-3"}},"spec":{"domain":{"cpu":{"cores":3}}}}}}`
	if diff := cmp.Diff(want, string(patch)); diff != "" {
		t.Error(diff)
	}
	if patch, err := Change(to, to, to); err != nil || patch != nil {
		t.Errorf("of what is as it should be: %s, %v", patch, err)
	}
	patch, err = Change(current, nil, to)
	if err != nil || !strings.Contains(string(patch), `"cores":3`) || strings.Contains(string(patch), "null") {
		t.Errorf("from nobody knows what: %s, %v", patch, err)
	}
}

func TestStatus(t *testing.T) {
	p := newPool(t, "")
	all := machines(t, "web-0", "web-1 unready", "web-2 deleted")
	var vms []*v1.VirtualMachine
	for _, m := range all {
		vms = append(vms, m.VM)
	}
	selector := labels.SelectorFromSet(p.Spec.Selector.MatchLabels)
	earlier := metav1.NewTime(now.Add(-time.Minute))
	p.Status.Conditions = []v1beta1.VirtualMachinePoolCondition{
		{Type: v1beta1.VirtualMachinePoolReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
	}
	p.Spec.Paused = true
	got := Status(p, selector, vms, Failure{ReasonFailedScaleOut, "quota"}, now)
	want := v1beta1.VirtualMachinePoolStatus{
		Replicas: 3, ReadyReplicas: 2, LabelSelector: "app=web",
		Conditions: []v1beta1.VirtualMachinePoolCondition{
			{
				Type: v1beta1.VirtualMachinePoolReplicaFailure, Status: corev1.ConditionTrue,
				Reason: ReasonFailedScaleOut, Message: "quota", LastTransitionTime: earlier,
			},
			{
				Type: v1beta1.VirtualMachinePoolReplicaPaused, Status: corev1.ConditionTrue, Reason: ReasonPaused,
				Message:            "nothing is created, changed or deleted until spec.paused is false",
				LastTransitionTime: metav1.NewTime(now),
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	p.Status, p.Spec.Paused = got, false
	if got := Status(p, selector, vms, Failure{}, now); len(got.Conditions) != 0 {
		t.Errorf("conditions %v", got.Conditions)
	}
}

func TestPreserves(t *testing.T) {
	for spec, want := range map[string]bool{
		"{}": false, "scaleInStrategy: {proactive: {}}": false,
		"scaleInStrategy: {proactive: {statePreservation: Disabled}}":     false,
		"scaleInStrategy: {proactive: {statePreservation: Online}}":       true,
		"scaleInStrategy: {proactive: {statePreservation: Offline}}":      true,
		"scaleInStrategy: {opportunistic: {statePreservation: Disabled}}": false,
	} {
		if got := Preserves(newPool(t, spec)); got != want {
			t.Errorf("%s: %t", spec, got)
		}
	}
}
