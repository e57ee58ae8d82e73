package frame

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestCounts(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: "1"}}
	child := func(name, uid, controller string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(uid),
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: types.UID(controller), Controller: new(true)},
			},
		}}
	}
	at := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		now   *corev1.ConfigMap
		shown map[types.UID]bool
		later time.Duration
		want  bool
	}{
		"shown":            {nil, map[types.UID]bool{"a": true}, 0, false},
		"soon":             {nil, nil, 0, true},
		"mine":             {child("x", "a", "1"), nil, time.Minute, true},
		"theirs":           {child("x", "a", "2"), nil, time.Minute, false},
		"gone":             {nil, nil, time.Minute, false},
		"mine, made again": {child("x", "b", "1"), nil, time.Minute, false},
	} {
		w := NewWrites(fake.NewClientBuilder().Build())
		if err := w.CreateCounted(t.Context(), owner, child("x", "a", "1"), at); err != nil {
			t.Fatal(err)
		}
		builder := fake.NewClientBuilder()
		if tc.now != nil {
			builder.WithObjects(tc.now)
		}
		live, later := builder.Build(), at.Add(tc.later)
		got, err := w.CountsStale(t.Context(), live, owner, tc.shown, later, &corev1.ConfigMap{})
		if err != nil || got != tc.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		_, err = w.CountsStale(t.Context(), live, owner, nil, at.Add(time.Minute), &unregistered{})
		if (err != nil) != tc.want {
			t.Errorf("%s: what is still counted cannot be read: %v", name, err)
		}
	}
	w := NewWrites(fake.NewClientBuilder().WithObjects(child("x", "a", "1")).Build())
	if err := w.CreateCounted(t.Context(), owner, child("x", "b", "1"), at); err == nil {
		t.Error("a name that is taken is no error")
	}
	if stale, err := w.CountsStale(t.Context(), nil, owner, nil, at, &corev1.ConfigMap{}); stale || err != nil {
		t.Errorf("what was not made is counted: %t, %v", stale, err)
	}
}

// unregistered is of a kind that the client does not know.
type unregistered struct{ corev1.ConfigMap }

func (u *unregistered) DeepCopyObject() runtime.Object { return &unregistered{*u.DeepCopy()} }

func TestRecordChange(t *testing.T) {
	events := [2]Event{{"On", "it is on"}, {"Off", "it is off"}}
	for states, want := range map[[2]bool]string{
		{false, true}: "Normal On it is on", {true, false}: "Normal Off it is off", {true, true}: "",
		{false, false}: "",
	} {
		recorder := record.NewFakeRecorder(1)
		RecordChange(recorder, &corev1.Pod{}, states[0], states[1], events)
		got := ""
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if got != want {
			t.Errorf("%v: %q", states, got)
		}
	}
}
