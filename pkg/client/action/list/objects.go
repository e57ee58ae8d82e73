package list

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// FollowObjects calls changed with each object that Get would list, first with all there are, by namespace and name,
// then with each that is new or has changed, until ctx ends. One that is gone is passed once more, as it was last. It
// has a deletionTimestamp then, the server's or the time when its absence was noticed; with a selector the server's
// alone, as it may be there and not selected any more.
func FollowObjects(ctx context.Context, api API, s Selection, changed func(runtime.Object) error) error {
	f := &follower{api: api, selection: s}
	shown := map[string]object{}
	f.report = func() error {
		now := f.objects()
		for _, id := range slices.Sorted(maps.Keys(now)) {
			if old, ok := shown[id]; ok && old.GetUID() == now[id].GetUID() &&
				old.GetResourceVersion() == now[id].GetResourceVersion() {
				continue
			}
			shown[id] = now[id]
			if err := changed(now[id]); err != nil {
				return err
			}
		}
		for _, id := range slices.Sorted(maps.Keys(shown)) {
			if now[id] != nil {
				continue
			}
			gone := shown[id]
			delete(shown, id)
			if gone.GetDeletionTimestamp() == nil && s.LabelSelector == "" && s.FieldSelector == "" {
				gone.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			}
			if err := changed(gone); err != nil {
				return err
			}
		}
		return nil
	}
	return f.run(ctx)
}

type object interface {
	runtime.Object
	metav1.Object
}

// objects returns the listed objects, by kind, namespace and name.
func (f *follower) objects() map[string]object {
	out := map[string]object{}
	if f.selection.Kind != VMIs {
		for k := range f.vms {
			vm := f.vms[k]
			out[idOf(&vm)] = typed(&vm)
		}
	}
	if f.selection.Kind == VMs {
		return out
	}
	for k := range f.vmis {
		vmi := f.vmis[k]
		if f.selection.Kind == VMIs || !store.Owned(&vmi) {
			out[idOf(&vmi)] = typed(&vmi)
		}
	}
	return out
}

func idOf(o object) string {
	if _, ok := o.(*v1.VirtualMachine); ok {
		return "vm/" + key(o)
	}
	return "vmi/" + key(o)
}

// typed gives an object its kind, which servers leave out in lists.
func typed(o object) object {
	kind := v1.VirtualMachineInstanceGroupVersionKind
	if _, ok := o.(*v1.VirtualMachine); ok {
		kind = v1.VirtualMachineGroupVersionKind
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}
