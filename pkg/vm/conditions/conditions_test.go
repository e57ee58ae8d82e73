package conditions

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
)

type condition = v1.VirtualMachineInstanceCondition

const (
	yes = corev1.ConditionTrue
	no  = corev1.ConditionFalse
)

var (
	now    = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	second = metav1.NewTime(now.Truncate(time.Second))
	before = metav1.NewTime(second.Add(-time.Hour))
	given  = metav1.NewTime(second.Add(-time.Minute))
	probed = metav1.NewTime(second.Add(-2 * time.Hour))
)

func TestSet(t *testing.T) {
	first, last := condition{Type: "First", Status: yes}, condition{Type: "Last", Status: no}
	old := condition{
		Type: "A", Status: yes, Reason: "Old", Message: "old", LastTransitionTime: before, LastProbeTime: probed,
	}
	for name, tc := range map[string]struct{ have, next, want condition }{
		"the status stays": {
			have: old, next: condition{Type: "A", Status: yes, Reason: "New", Message: "new"},
			want: condition{
				Type: "A", Status: yes, Reason: "New", Message: "new", LastTransitionTime: before,
				LastProbeTime: probed,
			},
		},
		"the status stays, and a time is given": {
			have: old, next: condition{Type: "A", Status: yes, LastTransitionTime: given},
			want: condition{Type: "A", Status: yes, LastTransitionTime: before, LastProbeTime: probed},
		},
		"the status changes": {
			have: old, next: condition{Type: "A", Status: no},
			want: condition{Type: "A", Status: no, LastTransitionTime: second, LastProbeTime: probed},
		},
		"the status changes, and a time is given": {
			have: old, next: condition{Type: "A", Status: no, LastTransitionTime: given},
			want: condition{Type: "A", Status: no, LastTransitionTime: given, LastProbeTime: probed},
		},
		"it is probed again": {
			have: old, next: condition{Type: "A", Status: yes, LastProbeTime: second},
			want: condition{Type: "A", Status: yes, LastTransitionTime: before, LastProbeTime: second},
		},
		"the old one has no time": {
			have: condition{Type: "A", Status: yes}, next: condition{Type: "A", Status: yes},
			want: condition{Type: "A", Status: yes, LastTransitionTime: second},
		},
		"nothing changes": {have: old, next: old, want: old},
	} {
		t.Run(name, func(t *testing.T) {
			list := []condition{first, tc.have, last}
			Set(&list, tc.next, now)
			if want := []condition{first, tc.want, last}; !reflect.DeepEqual(list, want) {
				t.Errorf("got  %+v\nwant %+v", list, want)
			}
		})
	}
	list := []condition{first}
	Set(&list, condition{Type: "A", Status: yes}, now)
	if want := []condition{first, {Type: "A", Status: yes, LastTransitionTime: second}}; !reflect.DeepEqual(list,
		want) {
		t.Errorf("a new one: %+v", list)
	}
}

func TestRemove(t *testing.T) {
	for name, tc := range map[string]struct{ have, want []condition }{
		"the middle one":   {[]condition{{Type: "B"}, {Type: "A"}, {Type: "C"}}, []condition{{Type: "B"}, {Type: "C"}}},
		"the only one":     {[]condition{{Type: "A"}}, []condition{}},
		"one that is none": {[]condition{{Type: "B"}, {Type: "C"}}, []condition{{Type: "B"}, {Type: "C"}}},
		"of none":          {},
	} {
		t.Run(name, func(t *testing.T) {
			list := append([]condition(nil), tc.have...)
			Remove(&list, v1.VirtualMachineInstanceConditionType("A"))
			if len(list) != len(tc.want) || len(list) > 0 && !reflect.DeepEqual(list, tc.want) {
				t.Errorf("%+v", list)
			}
		})
	}
}

func TestSetIf(t *testing.T) {
	list := []condition{{Type: "B"}}
	SetIf(&list, true, condition{Type: "A", Status: yes}, now)
	if !True(list, "A") || !Find(list, "A").LastTransitionTime.Equal(&second) || len(list) != 2 {
		t.Errorf("it holds: %+v", list)
	}
	SetIf(&list, false, condition{Type: "A", Status: yes}, now)
	if Find(list, "A") != nil || len(list) != 1 {
		t.Errorf("it holds no longer: %+v", list)
	}
}

func TestFind(t *testing.T) {
	list := []condition{{Type: "A", Status: no}, {Type: "B", Status: yes}}
	if Find(list, "B") != &list[1] || Find(list, "C") != nil || Find[condition](nil, "A") != nil {
		t.Error("the wrong one is found")
	}
	if With(list, "A", no) != &list[0] || With(list, "A", yes) != nil || With(list, "C", no) != nil {
		t.Error("the wrong one has the status")
	}
	if True(list, "A") || !True(list, "B") || True(list, "C") {
		t.Error("the wrong one is true")
	}
}

// TestEveryType sets a condition of each type.
func TestEveryType(t *testing.T) {
	every[v1.KubeVirtCondition](t)
	every[v1.VirtualMachineCondition](t)
	every[v1.VirtualMachineInstanceCondition](t)
	every[v1.VirtualMachineInstanceMigrationCondition](t)
	every[v1.VirtualMachineInstanceReplicaSetCondition](t)
	every[v1beta1.VirtualMachinePoolCondition](t)
	every[corev1.PodCondition](t)
	every[corev1.NodeCondition](t)
}

func every[C Condition](t *testing.T) {
	t.Helper()
	var next C
	value := reflect.ValueOf(&next).Elem()
	value.FieldByName("Type").SetString("A")
	value.FieldByName("Status").SetString("True")
	var list []C
	Set(&list, next, now)
	if len(list) != 1 || !True(list, "A") {
		t.Fatalf("%T: %+v", next, list)
	}
	value = reflect.ValueOf(&list[0]).Elem()
	if since := value.FieldByName("LastTransitionTime").Interface().(metav1.Time); !since.Equal(&second) {
		t.Errorf("%T: since %s", next, since)
	}
	last := "LastProbeTime"
	if !value.FieldByName(last).IsValid() {
		last = "LastHeartbeatTime" // a node's
	}
	value.FieldByName(last).Set(reflect.ValueOf(probed))
	Set(&list, next, now)
	if kept := reflect.ValueOf(list[0]).FieldByName(last).Interface().(metav1.Time); !kept.Equal(&probed) {
		t.Errorf("%T: probed %s", next, kept)
	}
}

// TestNote: notes of virt-controller are shown by no VM, and written by nobody else.
func TestNote(t *testing.T) {
	for _, kind := range []string{"virtkit.io/ClaimsLeft", "virtkit.io/ClaimsMade"} {
		if !Note(kind) || Mirrored(kind) || !slices.Contains(OfController(), kind) {
			t.Errorf("%s: note %v, mirrored %v, others than virt-controller's %v", kind, Note(kind), Mirrored(kind),
				OfController())
		}
	}
	if Note("Ready") || Note("HotMemoryChange") || !Mirrored("HotMemoryChange") {
		t.Error("a condition for people is a note")
	}
}
