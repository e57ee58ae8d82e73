package vmcontroller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

var errRefused = errors.New("refused")

// server is an API server that has objects, and takes writes without doing them, but for one.
type server struct {
	client.Client
	// writes are those that were asked for; refuse is which of them is refused, from 0 on.
	writes []string
	refuse int
}

func newServer(t *testing.T, refuse int, objects ...client.Object) *server {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1.AddToScheme(kinds)); err != nil {
		t.Fatal(err)
	}
	s := &server{refuse: refuse}
	ask := func(verb string, object client.Object) error {
		s.writes = append(s.writes, verb+" "+reflect.TypeOf(object).Elem().Name()+" "+object.GetName())
		if len(s.writes) == s.refuse+1 {
			return errRefused
		}
		return nil
	}
	s.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			return ask("create", object)
		},
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
			return ask("delete", object)
		},
		Patch: func(
			_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption,
		) error {
			return ask("patch", object)
		},
		SubResourcePatch: func(
			_ context.Context, _ client.Client, sub string, object client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			return ask("patch "+sub+" of", object)
		},
	}).Build()
	return s
}

// writesOf are what a VM's step writes, in order, where the write of a number is refused.
func writesOf(t *testing.T, strategy v1.VirtualMachineRunStrategy, change func(*world), refuse int) []string {
	t.Helper()
	w := newWorld(t, strategy)
	change(w)
	earlier := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.VM.Namespace, Name: "earlier", Labels: map[string]string{startRevisionLabel: string(w.VM.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.VM, v1.VirtualMachineGroupVersionKind)},
	}}
	w.Starts = []*appsv1.ControllerRevision{earlier}
	s := newServer(t, refuse, earlier)
	r := &Reconciler{Client: s, Live: s, Recorder: record.NewFakeRecorder(100), writes: frame.NewWrites(s)}
	step := Next(w.View)
	err := r.apply(t.Context(), w.View, &step)
	if step.Invalid == nil && refuse < 0 && err != nil {
		t.Errorf("after %q: %v", s.writes, err)
	}
	return s.writes
}

// TestApply: in which order a step is carried out, and what is written still after a write that is refused, as
// testdata/writes.golden has it.
func TestApply(t *testing.T) {
	var golden strings.Builder
	resumed := nexts[0]
	resumed.name, resumed.change = "has resumed", func(w *world) {
		w.VM.Annotations = map[string]string{savedmemory.ResumeAnnotation: "{}"}
		w.VMI.Annotations[savedmemory.ResumeAnnotation] = "{}"
	}
	for _, tc := range append(nexts, resumed) {
		all := writesOf(t, tc.strategy, tc.change, -1)
		if tc.name == "has resumed" && len(all) != 1 {
			t.Errorf("%s: %q", tc.name, all)
		}
		fmt.Fprintln(&golden, tc.name)
		for i, write := range all {
			after := writesOf(t, tc.strategy, tc.change, i)
			if strings.Join(after[:i+1], "\n") != strings.Join(all[:i+1], "\n") {
				t.Errorf("%s: %q and %q", tc.name, all, after)
			}
			if after = after[i+1:]; len(after) > 0 {
				write += ", and if it is refused " + strings.Join(after, ", ")
			}
			fmt.Fprintln(&golden, "  "+write)
		}
	}
	compare(t, "testdata/writes.golden", golden.String())
}
