package frame

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/frame/written"
)

func TestOwns(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: "1"}}
	child := func(name, controller string) *corev1.ConfigMap {
		yes := true
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: types.UID(controller), Controller: &yes},
			},
		}}
	}
	live := fake.NewClientBuilder().WithObjects(child("mine", "1"), child("theirs", "2")).Build()
	for name, tc := range map[string]struct {
		uid  types.UID
		want bool
	}{
		"mine":             {"mine", true},
		"theirs":           {"theirs", false},
		"gone":             {"gone", false},
		"mine, made again": {"another", false},
	} {
		key := types.NamespacedName{Namespace: "ns", Name: name}
		if tc.uid == "another" {
			key.Name = "mine"
		}
		got, err := Owns(t.Context(), live, owner, written.Made{Key: key, UID: tc.uid}, &corev1.ConfigMap{})
		if err != nil || got != tc.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := Owns(t.Context(), live, owner, written.Made{}, &unregistered{}); err == nil {
		t.Error("an object that cannot be read is no error")
	}
}

// unregistered is of a kind that the client does not know.
type unregistered struct{ corev1.ConfigMap }

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
