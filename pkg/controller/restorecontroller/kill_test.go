package restorecontroller

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

var now = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)

// errKilled is what a killed reconciler gets from its client.
var errKilled = errors.New("killed")

// world is an API server with a CSI driver and a CDI, and reconcilers that are killed.
type world struct {
	*testing.T
	client client.WithWatch
	cdi    bool
	writes []string
	events []string
	// subject is the restore that is worked on.
	subject string
}

// csi and dataVolumes read the world's.
type (
	csi         struct{ *world }
	dataVolumes struct{ *world }
)

func (csi) Served() bool                                          { return true }
func (csi) Follow(controller.Controller, handler.MapFunc)         {}
func (d dataVolumes) Installed() bool                             { return d.cdi }
func (dataVolumes) Follow(controller.Controller, handler.MapFunc) {}

func (c csi) Get(ctx context.Context, namespace, name string) (*snapshotsv1.VolumeSnapshot, error) {
	return frame.Found(ctx, c.client, namespace, name, &snapshotsv1.VolumeSnapshot{})
}

func (d dataVolumes) Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error) {
	return frame.Found(ctx, d.client, namespace, name, &cdiv1.DataVolume{})
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), v1beta1.AddToScheme(scheme),
		cdiv1.AddToScheme(scheme), snapshotsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t, subject: "r",
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(
			&v1.VirtualMachine{}, &v1beta1.VirtualMachineRestore{}, &corev1.PersistentVolumeClaim{},
			&cdiv1.DataVolume{},
		).Build(),
	}
}

// dryRun reports a create that writes nothing.
func dryRun(o []client.CreateOption) bool {
	return len((&client.CreateOptions{}).ApplyOptions(o).DryRun) > 0
}

// run has a new reconciler work on the restore until it has written that often, and is killed.
func (w *world) run(writes int) {
	w.Helper()
	did := func(verb string, object client.Object) error {
		if writes == 0 {
			return errKilled
		}
		writes--
		w.writes = append(w.writes, fmt.Sprintf("%s %T %s", verb, object, object.GetName()))
		return nil
	}
	limited := interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			if dryRun(o) {
				return c.Create(ctx, object, o...)
			}
			if err := did("create", object); err != nil {
				return err
			}
			object.SetUID(types.UID(fmt.Sprintf("made-%d", len(w.writes))))
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
	recorder := record.NewFakeRecorder(1000)
	defer func() {
		close(recorder.Events)
		for event := range recorder.Events {
			w.events = append(w.events, event)
		}
	}()
	r := &Reconciler{
		Client: limited, Live: limited, Recorder: recorder, Now: func() time.Time { return now },
		CDI: dataVolumes{w}, Snapshots: csi{w},
	}
	reconciler := r.Frame()
	for range 20 {
		before := len(w.writes)
		_, err := reconciler.Reconcile(w.Context(),
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: w.subject}})
		if errors.Is(err, errKilled) {
			return
		}
		if err != nil {
			w.Fatalf("after %v: %v", w.writes, err)
		}
		if !w.provision() && len(w.writes) == before {
			return
		}
	}
}

// provision is the CSI driver, and CDI. It reports whether there was something to do.
func (w *world) provision() (did bool) {
	w.Helper()
	var list corev1.PersistentVolumeClaimList
	w.must(w.client.List(w.Context(), &list))
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Status.Phase == "" {
			claim.Status.Phase, did = corev1.ClaimBound, true
			w.must(w.client.Status().Update(w.Context(), claim))
		}
	}
	var dvs cdiv1.DataVolumeList
	w.must(w.client.List(w.Context(), &dvs))
	for i := range dvs.Items {
		dv := &dvs.Items[i]
		if dv.Status.Phase == "" {
			dv.Status.Phase, did = cdiv1.Succeeded, true
			w.must(w.client.Status().Update(w.Context(), dv))
		}
		claim := w.claim(dv.Name)
		if claim != nil && len(claim.OwnerReferences) == 0 && claim.Annotations[populatedFor] == dv.Name {
			claim.OwnerReferences = []metav1.OwnerReference{
				*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")),
			}
			w.must(w.client.Update(w.Context(), claim))
			did = true
		}
	}
	return did
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("after %v: %v", w.writes, err)
	}
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim, err := frame.Found(w.Context(), w.client, "ns", name, &corev1.PersistentVolumeClaim{})
	w.must(err)
	return claim
}

func (w *world) vm(name string) *v1.VirtualMachine {
	w.Helper()
	vm, err := frame.Found(w.Context(), w.client, "ns", name, &v1.VirtualMachine{})
	w.must(err)
	return vm
}

func (w *world) restore() *v1beta1.VirtualMachineRestore {
	w.Helper()
	r, err := frame.Found(w.Context(), w.client, "ns", w.subject, &v1beta1.VirtualMachineRestore{})
	w.must(err)
	return r
}

// check that the target is the old or the new one, whole, unless it is held and its claims have no other names.
func (w *world) check(target string, inPlace bool) {
	w.Helper()
	vm := w.vm(target)
	if vm == nil {
		return
	}
	held := vm.Status.RestoreInProgress != nil
	committed := strings.HasPrefix(vm.Annotations[LastAnnotation], "r-")
	if cores := vm.Spec.Template.Spec.Domain.CPU.Cores; committed != (cores == 1) {
		w.Fatalf("after %v: committed %t, but %d cores", w.writes, committed, cores)
	}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		var name string
		if volume.DataVolume != nil {
			name = volume.DataVolume.Name
		} else {
			name = volume.PersistentVolumeClaim.ClaimName
		}
		claim := w.claim(name)
		switch {
		case claim == nil && inPlace && held && !committed:
		case claim == nil:
			w.Fatalf("after %v: committed %t, held %t, and no claim %s", w.writes, committed, held, name)
		case committed != (claim.Spec.DataSource != nil) && (!inPlace || !held):
			w.Fatalf("after %v: committed %t, held %t, and claim %s of %v", w.writes, committed, held, name,
				claim.Spec.DataSource)
		}
	}
	if held || !vmstate.Needed(&vm.Spec.Template.Spec) {
		return
	}
	var states corev1.PersistentVolumeClaimList
	w.must(w.client.List(w.Context(), &states, client.MatchingLabels{vmstate.Prefix: target}))
	if len(states.Items) != 1 || (states.Items[0].Spec.DataSource != nil) != committed {
		w.Fatalf("after %v: committed %t, and the state is on %d claims", w.writes, committed, len(states.Items))
	}
}

// A restore is killed after each of its writes, and a new reconciler goes on: at all times the target is whole, and in
// the end the new one. A restore that is deleted after any of its writes leaves it whole, too, and nothing else.
func TestKills(t *testing.T) {
	for name, tc := range map[string]struct {
		target       string
		withCDI      bool
		change       func(*v1beta1.VirtualMachineRestoreSpec)
		root, state  string
		deletedClaim []string
	}{
		"new claims": {
			target: "vm", root: "restore-r-uid-root", state: "restore-r-uid-" + vmstate.Prefix + "-vm",
			deletedClaim: []string{vmstate.Prefix + "-vm-xxxxx"},
		},
		"DataVolumes": {
			target: "vm", withCDI: true, root: "restore-r-uid-root", state: "restore-r-uid-" + vmstate.Prefix + "-vm",
		},
		"in place": {target: "vm", change: inPlace, root: "root", state: vmstate.Prefix + "-vm-xxxxx"},
		"DataVolumes, in place": {
			target: "vm", withCDI: true, change: inPlace, root: "root", state: vmstate.Prefix + "-vm-xxxxx",
		},
		"another VM": {target: "other", root: "other-root", change: func(s *v1beta1.VirtualMachineRestoreSpec) {
			s.VolumeRestorePolicy = new(v1beta1.VolumeRestorePolicyPrefixTargetName)
			s.Patches = []string{`{"op":"replace","path":"/metadata/labels/a","value":"c"}`}
		}},
		"another VM with DataVolumes": {
			target: "other", withCDI: true, root: "mine",
			change: func(s *v1beta1.VirtualMachineRestoreSpec) {
				s.VolumeRestoreOverrides = []v1beta1.VolumeRestoreOverride{
					{VolumeName: "root", RestoreName: "mine", Labels: map[string]string{"x": "y"}},
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := func(t *testing.T) *world {
				t.Helper()
				vm, objects := source(tc.withCDI)
				if tc.target != "vm" { // The state of a VM does not come along with another one; admission refuses it.
					vm.Spec.Template.Spec.Domain.Devices.TPM = nil
					for _, object := range objects {
						if content, ok := object.(*v1beta1.VirtualMachineSnapshotContent); ok {
							content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Devices.TPM = nil
							content.Spec.VolumeBackups = slices.DeleteFunc(content.Spec.VolumeBackups,
								func(b v1beta1.VolumeBackup) bool {
									return isState(b.VolumeName)
								})
						}
					}
				}
				w := newWorld(t, append(objects, vm, restoreOf(tc.target, tc.change))...)
				w.cdi = tc.withCDI
				return w
			}
			isInPlace := tc.change != nil && strings.Contains(name, "in place")
			// Killed after each write.
			w := begin(t)
			for range 60 {
				if isTrue(completeOf(w.restore())) {
					break
				}
				w.run(1)
				w.check(tc.target, isInPlace)
				w.check("vm", isInPlace)
				w.provision()
			}
			r, vm := w.restore(), w.vm(tc.target)
			if !isTrue(completeOf(r)) || r.Status.RestoreTime == nil || vm == nil ||
				vm.Status.RestoreInProgress != nil || vm.Spec.Template.Spec.Domain.CPU.Cores != 1 {
				t.Fatalf("after %v: %+v, VM %+v", w.writes, r.Status, vm)
			}
			if vm.Spec.Instancetype.RevisionName != tc.target+"-small-1" {
				t.Errorf("instance type %+v", vm.Spec.Instancetype)
			}
			root := w.claim(tc.root)
			if size := root.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "2Gi" ||
				root.Annotations["note"] != "root" ||
				root.Annotations["pv.kubernetes.io/bind-completed"] != "" || root.Labels[SourceLabel] != "vm" ||
				root.Labels["disk"] != "root" {
				t.Errorf("claim %+v", root)
			}
			if tc.state != "" && w.claim(tc.state).Labels[vmstate.Prefix] != "vm" {
				t.Errorf("the state's claim has labels %v", w.claim(tc.state).Labels)
			}
			for _, gone := range tc.deletedClaim {
				if w.claim(gone) != nil {
					t.Errorf("claim %s is there", gone)
				}
			}
			if tc.target != "vm" {
				if w.claim("root").Spec.DataSource != nil || *vm.Spec.RunStrategy != v1.RunStrategyHalted {
					t.Errorf("the source's claim %+v, run strategy %s", w.claim("root").Spec, *vm.Spec.RunStrategy)
				}
			}
			if owner := metav1.GetControllerOf(root); !tc.withCDI && (owner == nil || owner.Name != tc.target) {
				t.Errorf("the claim has owners %+v", root.OwnerReferences)
			}
			// Deleted after each write.
			all := len(w.writes)
			for n := 1; n < all; n++ {
				w := begin(t)
				w.run(n)
				w.must(client.IgnoreNotFound(w.client.Delete(w.Context(), w.restore())))
				w.run(100)
				w.check(tc.target, isInPlace)
				if r := w.restore(); r != nil {
					t.Fatalf("deleted after %v, it is there: %+v", w.writes, r)
				}
				if vm := w.vm(tc.target); vm != nil && vm.Status.RestoreInProgress != nil {
					t.Fatalf("deleted after %v, the VM is held", w.writes)
				}
				w.checkRest(tc.target, n)
			}
		})
	}
}

func completeOf(r *v1beta1.VirtualMachineRestore) *bool {
	if r == nil || r.Status == nil {
		return nil
	}
	return r.Status.Complete
}

// checkRest finds what a restore in vain has left behind: claims of its making that no VM uses.
func (w *world) checkRest(target string, n int) {
	w.Helper()
	var used []string
	for _, name := range []string{"vm", target} {
		if vm := w.vm(name); vm != nil {
			for _, volume := range vm.Spec.Template.Spec.Volumes {
				if volume.DataVolume != nil {
					used = append(used, volume.DataVolume.Name)
				} else {
					used = append(used, volume.PersistentVolumeClaim.ClaimName)
				}
			}
		}
	}
	var list corev1.PersistentVolumeClaimList
	w.must(w.client.List(w.Context(), &list))
	for _, claim := range list.Items {
		if claim.Annotations[LastAnnotation] != "" && !slices.Contains(used, claim.Name) &&
			claim.Labels[vmstate.Prefix] == "" &&
			(target == "vm" || !isState(claim.Labels["disk"]) || w.vm(target) == nil) {
			w.Fatalf("deleted after %d writes, claim %s is left of %v", n, claim.Name, w.writes)
		}
	}
}

func TestRefusedByAPIServer(t *testing.T) {
	vm, objects := source(false)
	w := newWorld(t, append(objects, vm, restoreOf("vm", nil))...)
	w.run(4)
	w.must(w.client.Delete(w.Context(),
		&snapshotsv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmsnapshot-1-volume-data"}}))
	w.run(100)
	if r := w.restore(); !strings.Contains(r.Status.Conditions[1].Reason,
		"missing volumeSnapshot vmsnapshot-1-volume-data") || isTrue(r.Status.Complete) {
		t.Errorf("%+v", r.Status)
	}
	if apierrors.IsNotFound(w.client.Get(w.Context(), types.NamespacedName{Namespace: "ns", Name: "data"},
		&corev1.PersistentVolumeClaim{})) {
		t.Error("the VM's claim is gone")
	}
}

// A new target that the API server would refuse fails its restore before anything is made for it; an error that
// another try may not meet is none.
func TestRehearsal(t *testing.T) {
	refusal := apierrors.NewInvalid(schema.GroupKind{Group: v1.GroupVersion.Group, Kind: "VirtualMachine"}, "other",
		field.ErrorList{field.Invalid(field.NewPath("spec", "runStrategy"), "Sometimes", "is none")})
	for name, tc := range map[string]struct {
		answer error
		fails  bool
	}{
		"taken":    {nil, false},
		"refused":  {refusal, true},
		"no right": {apierrors.NewForbidden(schema.GroupResource{}, "other", errors.New("quota")), false},
	} {
		t.Run(name, func(t *testing.T) {
			vm, objects := source(false)
			w := newWorld(t, append(objects, vm, restoreOf("other", func(s *v1beta1.VirtualMachineRestoreSpec) {
				s.Patches = []string{`{"op":"replace","path":"/spec/runStrategy","value":"Sometimes"}`}
			}))...)
			asked := 0
			w.client = interceptor.NewClient(w.client, interceptor.Funcs{Create: func(
				ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption,
			) error {
				if dryRun(o) {
					asked++
					return tc.answer
				}
				return c.Create(ctx, object, o...)
			}})
			w.run(1000)
			r := w.restore()
			failure := conditions.Find(r.Status.Conditions, v1beta1.ConditionFailure)
			if (failure != nil) != tc.fails || isTrue(r.Status.Complete) == tc.fails || asked != 1 {
				t.Fatalf("asked %d times: %+v", asked, r.Status)
			}
			if tc.fails && (!strings.Contains(failure.Reason, "VM other would be refused: ") ||
				!strings.Contains(failure.Reason, "spec.runStrategy") || w.claim("restore-r-uid-root") != nil) {
				t.Errorf("it fails with %q, claim %v", failure.Reason, w.claim("restore-r-uid-root"))
			}
		})
	}
}
