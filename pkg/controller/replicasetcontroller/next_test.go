package replicasetcontroller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func newSet(replicas int32) *v1.VirtualMachineInstanceReplicaSet {
	return &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set"},
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"},
			}},
		},
	}
}

// member is one of the set's VMIs by a few words: its name, and what is so of it.
func member(text string) *v1.VirtualMachineInstance {
	words := strings.Fields(text)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: words[0], UID: types.UID("uid-" + words[0]), Labels: map[string]string{"app": "web"},
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}}
	vmi.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(newSet(1), v1.VirtualMachineInstanceReplicaSetGroupVersionKind),
	}
	vmi.Status.Phase = v1.Pending
	ready := func(status corev1.ConditionStatus, reason string) {
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: status, Reason: reason},
		}
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "node":
			vmi.Status.NodeName = value
		case "starting":
			vmi.Status.Phase = v1.Scheduled
		case "running":
			vmi.Status.Phase = v1.Running
			ready(corev1.ConditionFalse, "GuestNotRunning")
		case "ready":
			vmi.Status.Phase = v1.Running
			ready(corev1.ConditionTrue, "")
		case "terminating":
			vmi.Status.Phase = v1.Running
			ready(corev1.ConditionFalse, v1.PodTerminatingReason)
		case "failed", "succeeded":
			vmi.Status.Phase = map[string]v1.VirtualMachineInstancePhase{
				"failed":    v1.Failed,
				"succeeded": v1.Succeeded,
			}[key]
			ago, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			vmi.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{
				{Phase: vmi.Status.Phase, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ago))},
			}
		case "age":
			ago, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			vmi.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		case "deleted":
			vmi.DeletionTimestamp = &metav1.Time{Time: now}
		case "other":
			vmi.Labels = map[string]string{"app": "other"}
		case "orphan":
			vmi.OwnerReferences = nil
		case "foreign":
			vmi.OwnerReferences[0].UID = "another"
		default:
			panic(word)
		}
	}
	return vmi
}

func members(texts ...string) []*v1.VirtualMachineInstance {
	var out []*v1.VirtualMachineInstance
	for _, text := range texts {
		out = append(out, member(text))
	}
	return out
}

func namesOf(vmis []*v1.VirtualMachineInstance) string {
	var out []string
	for _, vmi := range vmis {
		out = append(out, vmi.Name)
	}
	return strings.Join(out, " ")
}

func TestClaim(t *testing.T) {
	vmis := members("mine ready", "changed ready other", "free orphan", "free-going orphan deleted",
		"free-other orphan other", "foreign foreign", "going deleted")
	for name, tc := range map[string]struct {
		deleted              bool
		mine, adopt, release string
	}{
		"a set":               {false, "mine going", "free", "changed"},
		"one that is deleted": {true, "mine changed going", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet(1)
			if tc.deleted {
				set.DeletionTimestamp = &metav1.Time{Time: now}
			}
			got := Claim(set, labels.SelectorFromSet(set.Spec.Selector.MatchLabels), vmis)
			if namesOf(got.Mine) != tc.mine || namesOf(got.Adopt) != tc.adopt || namesOf(got.Release) != tc.release {
				t.Errorf("mine %q, adopt %q, release %q", namesOf(got.Mine), namesOf(got.Adopt), namesOf(got.Release))
			}
		})
	}
}

func TestNext(t *testing.T) {
	many := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("m%03d ready", i))
		}
		return out
	}
	for name, tc := range map[string]struct {
		replicas        int32
		vmis            []string
		change          func(*v1.VirtualMachineInstanceReplicaSet)
		create          int
		delete, replace string
		again           time.Duration
	}{
		"empty":           {replicas: 3, create: 3},
		"replicas unset":  {change: func(s *v1.VirtualMachineInstanceReplicaSet) { s.Spec.Replicas = nil }, create: 1},
		"enough":          {replicas: 2, vmis: []string{"a ready", "b"}},
		"more wanted":     {replicas: 4, vmis: []string{"a ready", "b"}, create: 2},
		"a burst at most": {replicas: 1000, create: 250},
		"none wanted":     {vmis: []string{"a ready node=n1", "b"}, delete: "b a"},
		"paused": {
			replicas: 3, vmis: []string{"a failed=1m"},
			change: func(s *v1.VirtualMachineInstanceReplicaSet) { s.Spec.Paused = true },
		},
		"being deleted": {
			replicas: 3,
			change:   func(s *v1.VirtualMachineInstanceReplicaSet) { s.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"ended are replaced":          {replicas: 2, vmis: []string{"a ready", "b failed=1s"}, create: 1, replace: "b"},
		"shut down as well":           {replicas: 1, vmis: []string{"a succeeded=1s"}, create: 1, replace: "a"},
		"ended and not wanted":        {replicas: 1, vmis: []string{"a ready", "b failed=1s"}, replace: "b"},
		"its pod ends, as in a drain": {replicas: 1, vmis: []string{"a terminating"}, create: 1, replace: "a"},
		"on their way out":            {replicas: 1, vmis: []string{"a ready deleted"}, create: 1},
		"ended, and deleted already":  {replicas: 1, vmis: []string{"a failed=1s deleted"}, create: 1},
		"ended early": {
			replicas: 2, vmis: []string{"a failed=4s age=20s", "b failed=1s age=20s"}, again: 6 * time.Second,
		},
		"ended early a while ago": {replicas: 1, vmis: []string{"a failed=10s age=20s"}, create: 1, replace: "a"},
		"too many, not on a node": {replicas: 1, vmis: []string{"a ready node=n1", "b"}, delete: "b"},
		"too many, starting": {
			replicas: 1, vmis: []string{"a running node=n1", "b starting node=n1"}, delete: "b",
		},
		"too many, not ready": {
			replicas: 2, vmis: []string{"a ready node=n1", "b running node=n2", "c ready node=n3"}, delete: "b",
		},
		"too many, in company": {
			replicas: 2, vmis: []string{"a ready node=n1", "b ready node=n2", "c ready node=n2 age=2h"}, delete: "b",
		},
		"too many, the youngest": {
			replicas: 2, vmis: []string{"a ready node=n1", "b ready node=n2 age=5m", "c ready node=n3"}, delete: "b",
		},
		"too many, all alike": {
			replicas: 1, vmis: []string{"b ready node=n1", "a ready node=n2"}, delete: "a",
		},
		"a burst of deletions at most": {vmis: many(300), delete: namesOf(members(many(250)...))},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet(tc.replicas)
			if tc.change != nil {
				tc.change(set)
			}
			view := View{
				Set: set, VMIs: members(tc.vmis...), Now: now,
				Adopt: members("free orphan"), Release: members("changed other"),
			}
			got := Next(view)
			if namesOf(got.Adopt) != "free" || namesOf(got.Release) != "changed" {
				t.Errorf("adopt %q, release %q", namesOf(got.Adopt), namesOf(got.Release))
			}
			if got.Create != tc.create || namesOf(got.Delete) != tc.delete || namesOf(got.Replace) != tc.replace ||
				got.RequeueAfter != tc.again {
				t.Errorf("create %d, delete %q, replace %q, again after %s", got.Create, namesOf(got.Delete),
					namesOf(got.Replace), got.RequeueAfter)
			}
		})
	}
}

func TestInstance(t *testing.T) {
	set := newSet(1)
	for _, key := range reserved.Keys() {
		set.Spec.Template.ObjectMeta.Annotations[key] = "x"
	}
	got := Instance(set)
	if key := reserved.Changed(got.Annotations, nil); key != "" {
		t.Errorf("it has the components' annotation %s", key)
	}
	if got.GenerateName != "web-" || got.Name != "" || got.Labels["app"] != "web" || got.Annotations["note"] != "x" ||
		!metav1.IsControlledBy(got, set) ||
		!slices.Contains(got.Finalizers, v1.VirtualMachineInstanceFinalizer) {
		t.Errorf("%+v", got.ObjectMeta)
	}
	set.Spec.Template.ObjectMeta.GenerateName = "b-"
	if got := Instance(set).GenerateName; got != "b-" {
		t.Errorf("from generateName: %s", got)
	}
	set.Spec.Template.ObjectMeta.Name = "a"
	if got := Instance(set).GenerateName; got != "a" {
		t.Errorf("from name: %s", got)
	}
}

func TestStatus(t *testing.T) {
	set := newSet(3)
	selector := labels.SelectorFromSet(set.Spec.Selector.MatchLabels)
	vmis := members("a ready", "b running", "c failed=1s", "d ready deleted", "e terminating")
	earlier := metav1.NewTime(now.Add(-time.Minute))
	failure := Failure{Reason: ReasonFailedCreate, Message: "quota"}
	condition := func(of v1.VirtualMachineInstanceReplicaSetConditionType, reason, message string, since metav1.Time,
	) v1.VirtualMachineInstanceReplicaSetCondition {
		return v1.VirtualMachineInstanceReplicaSetCondition{
			Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: since,
		}
	}
	const paused, failing = v1.VirtualMachineInstanceReplicaSetReplicaPaused,
		v1.VirtualMachineInstanceReplicaSetReplicaFailure
	pausedNow := condition(paused, ReasonPaused, "nothing is created or deleted until spec.paused is false",
		metav1.NewTime(now))
	for name, tc := range map[string]struct {
		paused  bool
		failure Failure
		had     []v1.VirtualMachineInstanceReplicaSetCondition
		want    []v1.VirtualMachineInstanceReplicaSetCondition
	}{
		"well":   {},
		"paused": {paused: true, want: []v1.VirtualMachineInstanceReplicaSetCondition{pausedNow}},
		"resumed": {
			had:  []v1.VirtualMachineInstanceReplicaSetCondition{pausedNow},
			want: []v1.VirtualMachineInstanceReplicaSetCondition{},
		},
		"fails": {
			failure: failure,
			want: []v1.VirtualMachineInstanceReplicaSetCondition{
				condition(failing, ReasonFailedCreate, "quota", metav1.NewTime(now)),
			},
		},
		"fails still": {
			failure: failure,
			had:     []v1.VirtualMachineInstanceReplicaSetCondition{condition(failing, "x", "y", earlier)},
			want: []v1.VirtualMachineInstanceReplicaSetCondition{
				condition(failing, ReasonFailedCreate, "quota", earlier),
			},
		},
		"does not fail": {
			had:  []v1.VirtualMachineInstanceReplicaSetCondition{condition(failing, "x", "y", earlier)},
			want: []v1.VirtualMachineInstanceReplicaSetCondition{},
		},
		"fails, resumed": {
			failure: failure, had: []v1.VirtualMachineInstanceReplicaSetCondition{pausedNow},
			want: []v1.VirtualMachineInstanceReplicaSetCondition{
				condition(failing, ReasonFailedCreate, "quota", metav1.NewTime(now)),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := set.DeepCopy()
			set.Spec.Paused, set.Status.Conditions = tc.paused, tc.had
			got := Status(set, selector, vmis, tc.failure, now)
			want := v1.VirtualMachineInstanceReplicaSetStatus{
				Replicas: 2, ReadyReplicas: 1, LabelSelector: "app=web", Conditions: tc.want,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
