package frame

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	pods     = schema.GroupResource{Resource: "pods"}
	conflict = apierrors.NewConflict(pods, "a", errors.New("another wrote it"))
	missing  = apierrors.NewNotFound(pods, "a")
	key      = types.NamespacedName{Namespace: "ns", Name: "a"}
)

// step of the reconciler that is tested.
type step struct {
	phase corev1.PodPhase
	Requeue
}

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "one"}}
}

// api is a client whose cache may be made to trail, and which counts writes.
type api struct {
	client.Client
	cached *corev1.Pod // what Get gives instead of the truth
	writes int
}

func newAPI(objects ...client.Object) *api {
	a := &api{}
	builder := fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Pod{})
	a.Client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption,
		) error {
			if pod, ok := object.(*corev1.Pod); ok && a.cached != nil {
				a.cached.DeepCopyInto(pod)
				return nil
			}
			return c.Get(ctx, key, object, o...)
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, o ...client.PatchOption,
		) error {
			a.writes++
			return c.Patch(ctx, object, patch, o...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch,
			o ...client.SubResourcePatchOption,
		) error {
			a.writes++
			return c.SubResource(sub).Patch(ctx, object, patch, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption,
		) error {
			a.writes++
			return c.Delete(ctx, object, options...)
		},
	}).Build()
	return a
}

// freeze has the cache show the pod as it is now from here on.
func (a *api) freeze(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := a.Get(t.Context(), key, pod); err != nil {
		t.Fatal(err)
	}
	a.cached = pod
}

func TestReconcile(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		gone, nobody    bool // the pod is gone, and there is no function for that
		goneErr         error
		look, apply     error
		requeue, change time.Duration // Next's, and what Apply makes of it
		calls           string
		again           time.Duration
		err             error
	}{
		"gone":                        {gone: true, calls: "gone "},
		"gone, which concerns nobody": {gone: true, nobody: true},
		"gone, and it is in the way":  {gone: true, goneErr: conflict, calls: "gone ", again: CatchUp},
		"gone, and that fails":        {gone: true, goneErr: broken, calls: "gone ", err: broken},
		"nothing to do":               {calls: "look next apply "},
		"the step says when":          {requeue: time.Minute, calls: "look next apply ", again: time.Minute},
		"what came of it says when":   {requeue: 1, change: time.Hour, calls: "look next apply ", again: time.Hour},
		"stale from look":             {look: ErrStale, requeue: time.Minute, calls: "look ", again: CatchUp},
		"wait from look": {
			look: fmt.Errorf("wrapped: %w", WaitError(time.Hour)), calls: "look ", again: time.Hour,
		},
		"no concern of it":        {look: ErrNothing, calls: "look "},
		"look fails":              {look: broken, calls: "look ", err: broken},
		"what look wants is gone": {look: fmt.Errorf("get claim: %w", missing), calls: "look ", again: CatchUp},
		"conflict": {
			apply: fmt.Errorf("write: %w", conflict), requeue: 1, calls: "look next apply ", again: CatchUp,
		},
		"not found": {apply: missing, calls: "look next apply ", again: CatchUp},
		"two conflicts": {
			apply: errors.Join(conflict, missing), calls: "look next apply ", again: CatchUp,
		},
		"a conflict and another error": {apply: errors.Join(conflict, broken), calls: "look next apply ", err: broken},
		"the same, wrapped": {
			apply: fmt.Errorf("all: %w", errors.Join(conflict, broken)), calls: "look next apply ", err: broken,
		},
		"apply fails": {apply: broken, requeue: time.Minute, calls: "look next apply ", err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(newPod())
			if tc.gone {
				a = newAPI()
			}
			calls := ""
			f := &Frame[*corev1.Pod, string, step]{
				Writes: NewWrites(a),
				Look: func(_ context.Context, pod *corev1.Pod) (string, error) {
					calls += "look "
					return string(pod.UID), tc.look
				},
				Next: func(view string) step {
					calls += "next "
					if view != "one" {
						t.Errorf("view %q", view)
					}
					return step{Requeue: Requeue{tc.requeue}}
				},
				Apply: func(_ context.Context, _ string, s *step) error {
					calls += "apply "
					if tc.change > 0 {
						s.RequeueAfter = tc.change
					}
					return tc.apply
				},
				Gone: func(_ context.Context, gone types.NamespacedName) error {
					calls += "gone "
					if gone != key {
						t.Errorf("%s is gone", gone)
					}
					return tc.goneErr
				},
			}
			if tc.nobody {
				f.Gone = nil
			}
			result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if calls != tc.calls || result.RequeueAfter != tc.again || !errors.Is(err, tc.err) {
				t.Errorf("calls %q, again after %s, error %v", calls, result.RequeueAfter, err)
			}
		})
	}
}

// statusFrame writes a phase and counts its looks.
func statusFrame(a *api, phase corev1.PodPhase, looks *int) *Frame[*corev1.Pod, *corev1.Pod, step] {
	writes := NewWrites(a)
	return &Frame[*corev1.Pod, *corev1.Pod, step]{
		Writes: writes,
		Look: func(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
			*looks++
			return pod, nil
		},
		Next: func(*corev1.Pod) step { return step{phase: phase} },
		Apply: func(ctx context.Context, pod *corev1.Pod, s *step) error {
			return PatchStatus(ctx, writes, pod, &pod.Status, corev1.PodStatus{Phase: s.phase})
		},
	}
}

func TestStatus(t *testing.T) {
	a, looks := newAPI(newPod()), 0
	f := statusFrame(a, corev1.PodRunning, &looks)
	a.freeze(t)
	reconciled := func(what string, wantLooks, wantWrites int, wantAgain time.Duration) {
		t.Helper()
		result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil || looks != wantLooks || a.writes != wantWrites || result.RequeueAfter != wantAgain {
			t.Errorf("%s: %d looks, %d writes, again after %s, error %v", what, looks, a.writes, result.RequeueAfter,
				err)
		}
	}
	reconciled("the first time", 1, 1, 0)
	reconciled("the cache does not show it", 1, 1, CatchUp)
	a.cached = nil
	reconciled("it does, and the status is as it should be", 2, 1, 0)
	a.freeze(t)
	a.cached.ResourceVersion = "1"
	a.cached.Status.Phase = corev1.PodPending
	reconciled("another wrote it", 3, 2, CatchUp)
}

func TestForgetsWhatIsGone(t *testing.T) {
	a, looks := newAPI(newPod()), 0
	f := statusFrame(a, corev1.PodRunning, &looks)
	a.freeze(t)
	old := a.cached
	for _, cached := range []*corev1.Pod{old, nil, old} {
		a.cached = cached
		if cached == nil {
			if err := a.Delete(t.Context(), newPod()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	if looks != 2 {
		t.Errorf("%d looks; one of the old version is stale no longer once the object is gone", looks)
	}
}

func TestRemoveFinalizer(t *testing.T) {
	pod := newPod()
	pod.Finalizers = []string{"virtkit.io/test"}
	a := newAPI(pod)
	if err := a.Delete(t.Context(), newPod()); err != nil {
		t.Fatal(err)
	}
	a.freeze(t)
	a.writes = 0
	w := NewWrites(a)
	if err := w.RemoveFinalizer(t.Context(), a.cached.DeepCopy(), "virtkit.io/other"); err != nil || a.writes != 0 {
		t.Errorf("one that it has not: %d writes, %v", a.writes, err)
	}
	if err := w.RemoveFinalizer(t.Context(), a.cached.DeepCopy(), "virtkit.io/test"); err != nil || a.writes != 1 {
		t.Errorf("%d writes, %v", a.writes, err)
	}
	if !w.Stale(a.cached) {
		t.Error("the cache shows what was released, and is not stale")
	}
	a.cached = nil
	if err := a.Get(t.Context(), key, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
}

func TestDelete(t *testing.T) {
	a := newAPI(newPod())
	w := NewWrites(a)
	pod := newPod()
	for i, want := range []bool{true, false} {
		if there, err := w.Delete(t.Context(), pod); err != nil || there != want || a.writes != 1 {
			t.Errorf("deletion %d: there %t, %d writes, %v", i, there, a.writes, err)
		}
	}
	if !w.Deleted(pod) {
		t.Error("the deletion is not remembered")
	}
	other := newPod()
	other.UID = "two"
	if there, err := w.Delete(t.Context(), other); err != nil || there {
		t.Errorf("one that is gone: there %t, %v", there, err)
	}
}

func TestPatchAs(t *testing.T) {
	a := newAPI(newPod())
	a.freeze(t)
	w := NewWrites(a)
	for text, patch := range map[string]func(context.Context, client.Object, client.Patch) error{
		`{"metadata":{"labels":{"a":"b"}}}`: w.PatchAs, `{"status":{"phase":"Running"}}`: w.PatchStatusAs,
	} {
		pod := newPod()
		if err := patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
		if !w.Stale(a.cached) || w.Stale(pod) {
			t.Errorf("%s: the write is not noted", text)
		}
	}
	pod := newPod()
	pod.Name = "other"
	if err := w.PatchAs(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte("{}"))); !apierrors.IsNotFound(
		err) {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestWritesOfManyKinds(t *testing.T) {
	a := newAPI(newPod())
	w := NewWrites(a)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	a.freeze(t)
	pod := a.cached.DeepCopy()
	if err := w.Change(t.Context(), pod, func() { metav1.SetMetaDataLabel(&pod.ObjectMeta, "a", "b") }); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if !w.Stale(a.cached) || w.Stale(pod) {
		t.Error("the pod's version before the write is the one that is stale")
	}
	if w.Stale(service) {
		t.Error("the service is as it was written")
	}
	w.Forget(&corev1.Pod{}, key)
	if w.Stale(a.cached) {
		t.Error("the pod was not forgotten")
	}
}
