package written

import (
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
	expect := func(what string, shown map[types.UID]bool, wantUnseen int, wantStale bool) {
		t.Helper()
		if unseen, stale := d.Settle(set, shown); len(unseen) != wantUnseen || stale != wantStale {
			t.Errorf("%s: unseen %v, stale %t", what, unseen, stale)
		}
	}
	expect("nothing", nil, 0, false)
	at := time.Unix(1, 0)
	d.Made(set, instance("a"), at)
	d.Made(set, instance("b"), at.Add(time.Second))
	if unseen, _ := d.Settle(set, nil); len(unseen) != 2 || unseen[0].Key.Name != "a" {
		t.Errorf("unseen %v", unseen)
	}
	expect("one is shown", map[types.UID]bool{"uid-a": false}, 1, false)
	expect("it is gone again", map[types.UID]bool{}, 1, false)
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
	expect("the other will never be shown", map[types.UID]bool{}, 0, false)

	d.Deleted(set, instance("c"))
	expect("not seen to be deleted", map[types.UID]bool{"uid-c": false}, 0, true)
	expect("seen to be deleted", map[types.UID]bool{"uid-c": true}, 0, false)
	expect("forgotten", map[types.UID]bool{"uid-c": false}, 0, false)
	d.Deleted(set, instance("c"))
	expect("gone", map[types.UID]bool{}, 0, false)
	d.Made(set, instance("d"), at)
	d.Forget(set)
	expect("the set is gone", nil, 0, false)
}
