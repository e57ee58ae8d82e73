package vmicontroller

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// waiting are the annotations of a claim that was made for an upload, which never came; mine is another's.
func waiting() map[string]string {
	return map[string]string{
		uploads.AnnotationMade: uploads.MadeFor, "mine": "x",
		uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Failed, Intact: true}),
	}
}

// booting is a VMI that boots from claims "awaited", which waits for an upload, and "other", and has no pod yet.
func booting(t *testing.T) View {
	view := View{Now: now, Claims: map[string]*corev1.PersistentVolumeClaim{}}
	view.VMI = testVMI(t, v1.Pending, func(vmi *v1.VirtualMachineInstance) {
		for _, name := range []string{"awaited", "other"} {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
				},
			}})
			view.Claims[name] = &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: name},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			}
		}
	})
	view.Claims["awaited"].Annotations = waiting()
	return view
}

// A claim that only waited for an upload waits no more when a pod is to use it, at boot or plugged into a guest; until
// then it does.
func TestUsed(t *testing.T) {
	plugs := func(annotations map[string]string) View {
		view := plugged(volumeIn(v1.VolumeBound, ""))
		view.Claims["c"].Annotations = annotations
		return view
	}
	dumps := plugs(waiting())
	dumps.VMI.Spec.Volumes[0].VolumeSource = v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{
		PersistentVolumeClaimVolumeSource: *dumps.VMI.Spec.Volumes[0].PersistentVolumeClaim,
	}}
	blocked, incomplete := booting(t), booting(t)
	blocked.Leased = "another guest has it"
	incomplete.Claims["awaited"].Annotations[uploads.AnnotationState] = uploads.Encode(
		uploads.State{Phase: uploads.Failed})
	taken := booting(t)
	taken.VMI.Status.ActivePods = map[types.UID]string{"pod-uid": ""}
	taken.Pods = []*corev1.Pod{testPod()}
	for name, tc := range map[string]struct {
		view    View
		creates bool
		used    string
	}{
		"at boot":              {booting(t), true, "awaited"},
		"not at boot yet":      {blocked, false, ""},
		"an incomplete disk":   {incomplete, false, ""},
		"booted already":       {taken, false, ""},
		"plugged":              {plugs(waiting()), true, "c"},
		"plugged, no upload's": {plugs(nil), true, ""},
		"of a memory dump":     {dumps, true, "c"},
	} {
		step := Next(tc.view)
		if creates := len(step.Pods)+len(step.Attachments) > 0; creates != tc.creates {
			t.Errorf("%s: creates pods %t", name, creates)
		}
		used := ""
		for _, claim := range step.Used {
			used += claim.Name
		}
		if used != tc.used {
			t.Errorf("%s: used are %q, want %q", name, used, tc.used)
		}
	}
}

// That a claim is used is written before there is a pod, and nothing else of the claim changes.
func TestUsedFirst(t *testing.T) {
	view := booting(t)
	claim := view.Claims["awaited"]
	refusal, pods, said := errors.New("no answer"), 0, ""
	api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(claim.DeepCopy()).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, under client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption,
		) error {
			if refusal != nil {
				return refusal
			}
			return under.Patch(ctx, o, patch, options...)
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			pods++
			return nil
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			synchronized := conditions.Find(o.(*v1.VirtualMachineInstance).Status.Conditions,
				v1.VirtualMachineInstanceSynchronized)
			if synchronized != nil {
				said = synchronized.Message
			}
			return nil
		},
	})
	r := &Reconciler{Client: api, writes: frame.NewWrites(api), Recorder: record.NewFakeRecorder(10)}
	read := func() map[string]string {
		var there corev1.PersistentVolumeClaim
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), &there); err != nil {
			t.Fatal(err)
		}
		claim.ResourceVersion = there.ResourceVersion
		return there.Annotations
	}
	if got := read(); !uploads.AskedFor(got) {
		t.Fatalf("annotations %v", got)
	}
	step := Next(view)
	if err := r.apply(t.Context(), view, &step); !errors.Is(err, refusal) || pods > 0 ||
		!strings.Contains(said, "claim awaited, which waited for an upload: no answer") {
		t.Errorf("%v, and %d pods; the status says %q", err, pods, said)
	}
	refusal = nil
	view = booting(t)
	claim = view.Claims["awaited"]
	read()
	step = Next(view)
	if err := NoteUsed(t.Context(), r.writes, step.Used); err != nil {
		t.Fatal(err)
	}
	if got := read(); !maps.Equal(got, map[string]string{"mine": "x"}) {
		t.Errorf("annotations %v", got)
	}
}
