package snapshotcontroller

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// counter counts how often a guest is frozen and thawed.
type counter struct{ freezes, thaws int }

func (c *counter) Freeze(context.Context, types.NamespacedName, time.Duration) (snapshots.Quiesced, error) {
	c.freezes++
	return snapshots.QuiescedAgent, nil
}

func (c *counter) Unfreeze(context.Context, types.NamespacedName) error {
	c.thaws++
	return nil
}

// TestRefused has a quota refuse the second of two VolumeSnapshots, five times: the guest is frozen once for that, and
// again when the quota has room.
func TestRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{snapshotv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	full := true
	quota := interceptor.Funcs{Create: func(
		ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption,
	) error {
		if full && object.GetName() == "vs-b" {
			resource := snapshotv1.SchemeGroupVersion.WithResource("volumesnapshots").GroupResource()
			return apierrors.NewForbidden(resource, object.GetName(), context.Canceled)
		}
		if object.GetUID() == "" && (&client.CreateOptions{}).ApplyOptions(options).DryRun == nil {
			object.SetUID(types.UID(object.GetName()))
		}
		return c.Create(ctx, object, options...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(quota).WithObjects(content(nil)).
		WithStatusSubresource(&v1beta1.VirtualMachineSnapshotContent{}).Build()
	guest := &counter{}
	r := &Contents{
		Client: c, Recorder: record.NewFakeRecorder(10), Now: func() time.Time { return now }, Freezer: guest,
		writes: frame.NewWrites(c),
	}
	round := func() *v1beta1.VirtualMachineSnapshotContent {
		t.Helper()
		var is v1beta1.VirtualMachineSnapshotContent
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(content(nil)), &is); err != nil {
			t.Fatal(err)
		}
		var list snapshotv1.VolumeSnapshotList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		view := viewOf(&is, GuestRunning)
		for i := range list.Items {
			view.VolumeSnapshots[list.Items[i].Name] = &list.Items[i]
		}
		step := NextContent(view)
		if err := r.apply(t.Context(), view, &step); err != nil {
			t.Fatal(err)
		}
		return &is
	}
	for i := range 5 {
		is := round()
		if message(is.Status) == "" {
			t.Errorf("round %d: it is not said that the quota is full", i)
		}
		if w := recordOf(is.Annotations); w == nil || !w.Thawed {
			t.Errorf("round %d: record %+v of a guest that writes", i, w)
		}
	}
	if guest.freezes != 1 || guest.thaws != 1 {
		t.Errorf("frozen %d times and thawed %d times for one refusal", guest.freezes, guest.thaws)
	}
	full = false
	if w := recordOf(round().Annotations); guest.freezes != 2 || guest.thaws != 1 || w.Thawed {
		t.Errorf("with room: frozen %d times and thawed %d times, record %+v", guest.freezes, guest.thaws, w)
	}
}
