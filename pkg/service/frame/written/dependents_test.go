package written

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

func TestDependents(t *testing.T) {
	var d Dependents
	set := types.NamespacedName{Namespace: "ns", Name: "set"}
	instance := func(name string) *v1.VirtualMachineInstance {
		return &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		}
	}
	expect := func(what string, shown map[types.UID]bool, want ...string) {
		t.Helper()
		var got []string
		for _, made := range d.unseen(set, shown) {
			got = append(got, made.Key.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: unseen %q", what, got)
		}
	}
	expect("nothing", nil)
	at := time.Unix(1, 0)
	d.Made(set, instance("a"), at)
	d.Made(set, instance("b"), at.Add(time.Second))
	expect("the oldest first", nil, "a", "b")
	expect("one is shown", map[types.UID]bool{"uid-a": true}, "b")
	expect("it is gone again", nil, "b")
	asks := 0
	gone := func(made Made) (bool, error) {
		asks++
		return made.UID != "uid-b", nil
	}
	if stale, err := d.Stale(set, nil, at.Add(3*time.Second), gone); !stale || err != nil || asks != 0 {
		t.Errorf("soon: stale %t, %v, %d questions", stale, err, asks)
	}
	if stale, err := d.Stale(set, nil, at.Add(time.Minute), gone); stale || err != nil || asks != 1 {
		t.Errorf("later: stale %t, %v, %d questions", stale, err, asks)
	}
	expect("the other will never be shown", nil)
	d.Made(set, instance("d"), at)
	if stale, err := d.Stale(set, nil, at.Add(time.Minute), gone); !stale || err != nil || asks != 2 {
		t.Errorf("still there: stale %t, %v, %d questions", stale, err, asks)
	}
	d.Forget(set)
	expect("the set is gone", nil)
}
