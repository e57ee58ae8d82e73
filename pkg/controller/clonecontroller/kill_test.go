package clonecontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

var now = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)

// errKilled is what a killed reconciler gets from its client.
var errKilled = errors.New("killed")

// world is an API server with a garbage collector, a CSI driver, a snapshot controller and virt-controller's own
// restore controller, and clone controllers that are killed.
type world struct {
	*testing.T
	client client.WithWatch
	writes []string
	events []string // the types and reasons of the clone's
	uids   int
	// late says that the copies of images are bound when a VM starts, which none does.
	late bool
	// restoreSize is what the CSI driver says that a copy needs.
	restoreSize *resource.Quantity
}

// csi has the world's VolumeSnapshots, and noCDI no DataVolumes.
type (
	csi   struct{ *world }
	noCDI struct{}
)

func (csi) Served() bool                                  { return true }
func (csi) Follow(controller.Controller, handler.MapFunc) {}
func (c csi) Get(ctx context.Context, namespace, name string) (*snapshotsv1.VolumeSnapshot, error) {
	out := &snapshotsv1.VolumeSnapshot{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

func (noCDI) Installed() bool                               { return false }
func (noCDI) Follow(controller.Controller, handler.MapFunc) {}
func (noCDI) Get(context.Context, string, string) (*cdiv1.DataVolume, error) {
	return nil, nil
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), v1beta1.AddToScheme(scheme),
		clonev1beta1.AddToScheme(scheme), snapshotsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t,
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(
			&v1.VirtualMachine{}, &v1beta1.VirtualMachineRestore{}, &corev1.PersistentVolumeClaim{},
			&clonev1beta1.VirtualMachineClone{},
			&v1beta1.VirtualMachineSnapshot{}, &v1beta1.VirtualMachineSnapshotContent{}, &snapshotsv1.VolumeSnapshot{},
		).Build(),
	}
}

// counted is a client that is cut off after so many writes; none are counted when it is negative.
func (w *world) counted(writes int) client.WithWatch {
	did := func(verb string, object client.Object) error {
		if writes == 0 {
			return errKilled
		}
		if writes > 0 {
			writes--
			w.writes = append(w.writes, fmt.Sprintf("%s %T %s", verb, object, object.GetName()))
		}
		return nil
	}
	return interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			if err := did("create", object); err != nil {
				return err
			}
			w.uids++
			object.SetUID(types.UID(fmt.Sprintf("made-%d", w.uids)))
			return c.Create(ctx, object, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.DeleteOption) error {
			if err := did("delete", object); err != nil {
				return err
			}
			return c.Delete(ctx, object, o...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch,
			o ...client.PatchOption,
		) error {
			if err := did("patch", object); err != nil {
				return err
			}
			return c.Patch(ctx, object, p, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, p client.Patch,
			o ...client.SubResourcePatchOption,
		) error {
			if err := did("patch "+sub, object); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, object, p, o...)
		},
	})
}

// run has a new reconciler work on the clone until it has written that often, and is killed.
func (w *world) run(writes int) {
	w.Helper()
	limited, suffixes := w.counted(writes), 0
	recorder := record.NewFakeRecorder(1000)
	defer func() {
		close(recorder.Events)
		for event := range recorder.Events {
			words := strings.Fields(event)
			w.events = append(w.events, words[0]+" "+words[1])
		}
	}()
	r := &Reconciler{
		Client: limited, Live: limited, Recorder: recorder, Now: func() time.Time { return now },
		Suffix:  func() string { suffixes++; return fmt.Sprintf("%d-%d", len(w.writes), suffixes) },
		Classes: oneClass{},
	}
	frame := r.Frame()
	for range 20 {
		before := len(w.writes)
		_, err := frame.Reconcile(w.Context(),
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "c"}})
		if errors.Is(err, errKilled) {
			return
		}
		w.must(err)
		w.settle()
		if len(w.writes) == before {
			return
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("after %v: %v", w.writes, err)
	}
}

// listed are the objects of a list, by name.
func listed[L client.ObjectList, T any](w *world, list L, items func(L) []T) []T {
	w.Helper()
	w.must(w.client.List(w.Context(), list))
	return items(list)
}

func (w *world) clone() *clonev1beta1.VirtualMachineClone {
	w.Helper()
	out := &clonev1beta1.VirtualMachineClone{}
	err := w.client.Get(w.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}, out)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return out
}

// settle has all others do what there is to do.
func (w *world) settle() {
	w.Helper()
	for range 3 {
		w.collect()
		for _, s := range w.snapshots() {
			if _, copied := s.Annotations[clones.CopiedAnnotation]; s.Status == nil && !copied {
				w.take(&s)
			}
		}
		w.takeClaims()
		w.bindCopies()
		w.bindClaims()
		for _, r := range w.restores() {
			restores := w.counted(-1)
			frame := (&restorecontroller.Reconciler{
				Client: restores, Live: restores, Recorder: record.NewFakeRecorder(1000),
				Now: func() time.Time { return now },
				CDI: noCDI{}, Snapshots: csi{w},
			}).Frame()
			for range 12 {
				_, err := frame.Reconcile(w.Context(),
					reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&r)})
				w.must(err)
				for _, claim := range w.claims() {
					if claim.Status.Phase == "" {
						claim.Status.Phase = corev1.ClaimBound
						w.must(w.client.Status().Update(w.Context(), &claim))
					}
				}
			}
		}
	}
}

// take makes a snapshot.
func (w *world) take(s *v1beta1.VirtualMachineSnapshot) {
	w.Helper()
	vm, claims := source(s.Namespace)
	cut := &snapshotsv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "volume-" + string(s.UID), UID: "cut-" + s.UID},
		Status: &snapshotsv1.VolumeSnapshotStatus{
			ReadyToUse: new(true), BoundVolumeSnapshotContentName: new("bound-" + string(s.UID)),
		},
	}
	bound := &snapshotsv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "bound-" + string(s.UID)}}
	bound.Spec.Driver, bound.Spec.DeletionPolicy = "csi.example", snapshotsv1.VolumeSnapshotContentDelete
	bound.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: s.Namespace, Name: cut.Name, UID: cut.UID}
	bound.Status = &snapshotsv1.VolumeSnapshotContentStatus{SnapshotHandle: new("handle")}
	content := &v1beta1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "content-" + string(s.UID)},
		Status:     &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true)},
	}
	content.Spec.Source.VirtualMachine = &v1beta1.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec}
	content.Spec.VolumeBackups = []v1beta1.VolumeBackup{{
		VolumeName: "root", VolumeSnapshotName: &cut.Name,
		PersistentVolumeClaim: v1beta1.PersistentVolumeClaim{ObjectMeta: claims.ObjectMeta, Spec: claims.Spec},
	}}
	w.must(errors.Join(w.client.Create(w.Context(), cut), w.client.Create(w.Context(), content),
		w.client.Create(w.Context(), bound)))
	s.Status = &v1beta1.VirtualMachineSnapshotStatus{
		Phase: v1beta1.Succeeded, ReadyToUse: new(true), SourceUID: &vm.UID,
		VirtualMachineSnapshotContentName: &content.Name,
	}
	w.must(w.client.Status().Update(w.Context(), s))
}

// collect deletes what belongs to a clone that is gone.
func (w *world) collect() {
	w.Helper()
	w.collectCopies()
	if w.clone() != nil {
		return
	}
	gone := func(o client.Object) {
		owner := metav1.GetControllerOf(o)
		if owner != nil && owner.Kind == clonev1beta1.VirtualMachineCloneKind.Kind && o.GetDeletionTimestamp() == nil {
			w.must(w.client.Delete(w.Context(), o))
		}
	}
	for _, s := range w.snapshots() {
		gone(&s)
	}
	for _, r := range w.restores() {
		gone(&r)
	}
}

// source is a VM with a claim.
func source(namespace string) (*v1.VirtualMachine, *corev1.PersistentVolumeClaim) {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vm", UID: "vm-uid"},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyAlways), Template: &v1.VirtualMachineInstanceTemplateSpec{},
		},
	}
	root := v1.Volume{Name: "root"}
	root.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{}
	root.PersistentVolumeClaim.ClaimName = "root"
	vm.Spec.Template.Spec.Volumes = []v1.Volume{root}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root", UID: "root-uid"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	return vm, claim
}

// over reports a clone that has nothing more to do.
func over(c *clonev1beta1.VirtualMachineClone) bool {
	return c.Status.Phase == clonev1beta1.Failed ||
		c.Status.Phase == clonev1beta1.Succeeded && c.Status.RestoreName == nil
}

// A clone is killed after each of its writes, and a new reconciler goes on: in the end there is one new VM with its
// claims, or a clone that says why not, and nothing temporary. One that is deleted after any of its writes leaves a
// whole VM or none.
func TestKills(t *testing.T) {
	for name, tc := range map[string]struct {
		from, target string
		other        bool
		failed       string
		across       string // the namespace of the source
	}{
		"a VM":          {from: kindMachine, target: "copy"},
		"a VM, no name": {from: kindMachine},
		"a snapshot":    {from: kindSnapshot, target: "copy"},
		"a name in use": {
			from: kindMachine, target: "copy", other: true, failed: "VM ns/copy exists, and this clone did not make it",
		},
		"a VM, of another namespace":            {from: kindMachine, target: "copy", across: "src"},
		"a VM, of another namespace, same name": {from: kindMachine, target: "vm", across: "src"},
		"a VM, of another namespace, no name":   {from: kindMachine, across: "src"},
		"a snapshot, of another namespace":      {from: kindSnapshot, target: "copy", across: "src"},
		"a name in use, of another namespace": {
			from: kindMachine, target: "copy", across: "src", other: true, failed: "VM ns/copy exists",
		},
		"a name, of a snapshot": {from: kindSnapshot, target: "copy", other: true, failed: "VM ns/copy exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := 0
			begin := func(t *testing.T) *world {
				t.Helper()
				vm, claim := source(cmp.Or(tc.across, "ns"))
				c := &clonev1beta1.VirtualMachineClone{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c-uid"},
				}
				c.Spec.Source = &corev1.TypedLocalObjectReference{
					APIGroup: new("kubevirt.io"), Kind: tc.from, Name: "vm",
				}
				if tc.target != "" {
					c.Spec.Target = &corev1.TypedLocalObjectReference{
						APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: tc.target,
					}
				}
				if tc.across != "" {
					pin := map[string]string{kindMachine: "vm-uid", kindSnapshot: "s-uid"}[tc.from]
					c.Annotations = map[string]string{clones.NamespaceAnnotation: tc.across, clones.UIDAnnotation: pin}
				}
				objects := []client.Object{vm, claim, c}
				if tc.from == kindSnapshot {
					kept = 1
					objects = append(objects, &v1beta1.VirtualMachineSnapshot{
						ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(tc.across, "ns"), Name: "vm", UID: "s-uid"},
					})
				}
				if tc.other {
					objects = append(objects, &v1.VirtualMachine{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: tc.target, UID: "other"},
					})
				}
				w := newWorld(t, objects...)
				w.settle()
				return w
			}
			w := begin(t)
			for before := -1; len(w.writes) > before; w.settle() {
				before = len(w.writes)
				w.run(1)
			}
			c := w.clone()
			if c == nil || !over(c) || (c.Status.Phase == clonev1beta1.Failed) != (tc.failed != "") {
				t.Fatalf("after %v: %+v", w.writes, c)
			}
			w.checkRest(kept, 1)
			if tc.failed != "" {
				if said := c.Status.Conditions[0].Message; !strings.HasPrefix(said, tc.failed) {
					t.Errorf("says %q", said)
				}
			} else if made := w.machine(*c.Status.TargetName); made == nil ||
				*made.Spec.RunStrategy != v1.RunStrategyHalted ||
				tc.target != "" && made.Name != tc.target {
				t.Errorf("the new VM is %+v", made)
			}
			// Deleted after each write.
			for n := 1; n < len(w.writes); n++ {
				w := begin(t)
				w.run(n)
				w.must(client.IgnoreNotFound(w.client.Delete(w.Context(), w.clone())))
				w.settle()
				w.run(100)
				w.settle()
				w.checkRest(kept, n)
			}
		})
	}
}

func (w *world) machine(name string) *v1.VirtualMachine {
	for _, vm := range w.machines() {
		if vm.Name == name && vm.Namespace == "ns" {
			return &vm
		}
	}
	return nil
}

// checkRest finds what a clone has left behind, and a VM that lacks a claim.
func (w *world) checkRest(snapshots, n int) {
	w.Helper()
	if s, r := w.snapshots(), w.restores(); len(s) != snapshots || len(r) != 0 {
		w.Fatalf("killed or deleted after %d writes, %d snapshots and %d restores are left of %v: %+v", n, len(s),
			len(r), w.writes, r)
	}
	w.checkCopies(n)
	var used, have []string
	machines := w.machines()
	for _, vm := range machines {
		if vm.Spec.Template != nil {
			used = append(used, vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		}
	}
	for _, claim := range w.claims() {
		have = append(have, claim.Name)
	}
	slices.Sort(used)
	slices.Sort(have)
	if !slices.Equal(used, have) || len(machines) > 2 {
		w.Fatalf("killed or deleted after %d writes, %d VMs use claims %v, and there are %v; wrote %v", n,
			len(machines), used, have, w.writes)
	}
}
