package snapshotcontroller

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

var update = flag.Bool("update", false, "write the golden files")

var errRefused = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("refused"))

// site is an API server and a guest that note what they are asked for, and refuse one of it.
type site struct {
	client.Client
	mu     sync.Mutex
	asked  []string
	refuse int // from 0 on
	saved  savedmemory.Saved
	// trouble is the answer of SaveMemory, if it is not refused.
	trouble error
	// recorded, which may be nil, is closed by the first patch: a guest that is to freeze meanwhile answers later.
	recorded chan struct{}
}

func (s *site) ask(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	if s.recorded != nil && strings.HasPrefix(what, "patch") {
		close(s.recorded)
		s.recorded = nil
	}
	if len(s.asked) == s.refuse+1 {
		return errRefused
	}
	return nil
}

func (s *site) Freeze(context.Context, types.NamespacedName, time.Duration) (snapshots.Quiesced, error) {
	s.mu.Lock()
	recorded := s.recorded
	s.mu.Unlock()
	if recorded != nil {
		<-recorded
	}
	return snapshots.QuiescedAgent, s.ask("freeze the guest")
}

func (s *site) Unfreeze(context.Context, types.NamespacedName) error { return s.ask("thaw the guest") }

func (s *site) SaveMemory(
	context.Context, types.NamespacedName, string, time.Duration,
) (savedmemory.Saved, error) {
	return s.saved, cmp.Or(s.ask("save the guest's memory"), s.trouble)
}

func newSite(t *testing.T, refuse int, saved savedmemory.Saved, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		snapshotv1.AddToScheme, v1beta1.AddToScheme, v1.AddToScheme, corev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{refuse: refuse, saved: saved}
	ask := func(verb string, object client.Object) error {
		return s.ask(verb + " " + reflect.TypeOf(object).Elem().Name() + " " + object.GetName())
	}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.VirtualMachineSnapshotContent{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(
			_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption,
		) error {
			if (&client.CreateOptions{}).ApplyOptions(options).DryRun != nil {
				return ask("rehearse", object)
			}
			object.SetUID(types.UID(object.GetName()))
			return ask("create", object)
		},
		Patch: func(
			_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption,
		) error {
			what := "patch"
			if w := recordOf(object.GetAnnotations()); w != nil {
				what += fmt.Sprintf(" (thawed %t, complete %t, timed out %t, quiesced %q)", w.Thawed, w.Complete,
					w.TimedOut, w.Quiesced)
			}
			if m := savedmemory.MemoryOf(object.GetAnnotations()); m != nil {
				what += fmt.Sprintf(" (memory, paused for %s)", m.Stood.Duration)
			}
			return ask(what, object)
		},
		SubResourcePatch: func(
			_ context.Context, _ client.Client, sub string, object client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			text := message(object.(*v1beta1.VirtualMachineSnapshotContent).Status)
			return ask(fmt.Sprintf("patch %s (error %q) of", sub, text), object)
		},
	}).Build()
	return s
}

// applied is a content that a step is carried out for.
type applied struct {
	name string
	view func() ContentView
	// saved is how far the guest's memory is.
	saved savedmemory.Saved
	// records says that the freeze is not on record yet.
	records bool
}

// single has one claim, and a record of a freeze that has not begun.
func single(changes ...func(*v1beta1.VirtualMachineSnapshotContent)) *v1beta1.VirtualMachineSnapshotContent {
	return content(func(c *v1beta1.VirtualMachineSnapshotContent) {
		c.Spec.VolumeBackups = c.Spec.VolumeBackups[:1]
		recorded(*newRecord(snapshotAged(time.Minute), "", now))(c)
		for _, change := range changes {
			change(c)
		}
	})
}

// saving is a view of a guest whose memory is to be saved, or is being saved.
func saving(claim bool, phase v1.VolumePhase) ContentView {
	view := withMemory(GuestRunning, claim, phase, nil)
	view.Content.Spec.VolumeBackups = view.Content.Spec.VolumeBackups[:1]
	view.Memory.VMI.Name = "demo"
	return view
}

func applieds() []applied {
	ended := now.Add(-time.Second)
	whole := savedmemory.Saved{Began: now.Add(-2 * time.Second), Ended: &ended, Size: 5}
	of := func(
		guest Guest, there []*snapshotv1.VolumeSnapshot, changes ...func(*v1beta1.VirtualMachineSnapshotContent),
	) func() ContentView {
		return func() ContentView { return viewOf(single(changes...), guest, there...) }
	}
	failed := func(c *v1beta1.VirtualMachineSnapshotContent) {
		recorded(FreezeRecord{Until: now.Add(time.Minute), Thawed: true})(c)
		c.Status = &v1beta1.VirtualMachineSnapshotContentStatus{Error: newError(now, "refused before")}
	}
	over := recorded(FreezeRecord{Until: now.Add(-snapshots.ControllerEarly), Quiesced: snapshots.QuiescedAgent})
	withRecord := func(c *v1beta1.VirtualMachineSnapshotContent) {
		text, err := (&savedmemory.Memory{Claim: testVolume, Saved: whole}).Encode()
		if err != nil {
			panic(err)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, savedmemory.MemoryAnnotation, text)
	}
	bare := func(c *v1beta1.VirtualMachineSnapshotContent) { c.Annotations = nil }
	taken := []*snapshotv1.VolumeSnapshot{volumeSnapshot("a", true, false, "")}
	taken[0].Annotations = map[string]string{QuiescedAnnotation: string(snapshots.QuiescedPaused)}
	pending := []*snapshotv1.VolumeSnapshot{volumeSnapshot("a", false, false, "")}
	return []applied{
		{name: "of a VM that is off", view: of(NoGuest, nil, bare)},
		{name: "of a guest that has no node", view: of(GuestWaiting, nil, bare)},
		{name: "of a guest", view: of(GuestRunning, nil)},
		{name: "of a guest, after a refusal", view: of(GuestRunning, nil, failed), records: true},
		{name: "waits for its volumes", view: of(GuestRunning, pending)},
		{name: "all volumes are taken", view: of(GuestRunning, taken)},
		{name: "a volume fails", view: of(GuestRunning, []*snapshotv1.VolumeSnapshot{
			volumeSnapshot("a", false, false, "no space"),
		})},
		{name: "takes too long", view: of(GuestRunning, pending, over)},
		{name: "is ready", view: of(GuestRunning, []*snapshotv1.VolumeSnapshot{
			volumeSnapshot("a", true, true, ""),
		}, recorded(FreezeRecord{Until: now, Thawed: true, Complete: true}))},
		{name: "with memory, without a claim", view: func() ContentView { return saving(false, "") }},
		{name: "with memory, without a volume", view: func() ContentView { return saving(true, "") }},
		{name: "with memory, being saved", view: func() ContentView { return saving(true, v1.HotplugVolumeMounted) }},
		{
			name: "with memory, saved", saved: whole,
			view: func() ContentView { return saving(true, v1.HotplugVolumeMounted) },
		},
		{
			name: "with memory, all volumes are taken",
			view: of(GuestRunning, taken, withRecord),
		},
		{name: "is deleted while the guest is frozen", view: func() ContentView {
			view := of(GuestRunning, pending)()
			view.Snapshot.DeletionTimestamp = new(metav1.NewTime(now))
			return view
		}},
		{name: "is deleted before anything is known", view: func() ContentView {
			view := of(GuestRunning, nil, bare)()
			view.Snapshot = nil
			return view
		}},
	}
}

// askedFor is what a content's step asks for, in order, when what has a number is refused.
func askedFor(t *testing.T, tc applied, refuse int) []string {
	t.Helper()
	view := tc.view()
	s := newSite(t, refuse, tc.saved)
	if tc.records {
		s.recorded = make(chan struct{})
	}
	r := &Contents{
		Client: s, Recorder: record.NewFakeRecorder(100), Now: func() time.Time { return now }, Freezer: s, Memory: s,
		writes: frame.NewWrites(s),
	}
	step := NextContent(view)
	err := r.apply(t.Context(), view, &step)
	if refuse < 0 && err != nil {
		t.Errorf("%s: after %q: %v", tc.name, s.asked, err)
	}
	return s.asked
}

// TestApplyContent: in which order a step is carried out, and what follows a refusal, as testdata/content.golden has
// it.
func TestApplyContent(t *testing.T) {
	var golden strings.Builder
	for _, tc := range applieds() {
		all := askedFor(t, tc, -1)
		fmt.Fprintln(&golden, tc.name)
		for i, what := range all {
			after := askedFor(t, tc, i)
			if after = after[i+1:]; len(after) > 0 {
				what += "\n    and if it is refused: " + strings.Join(after, ", ")
			}
			fmt.Fprintln(&golden, "  "+what)
		}
	}
	compare(t, "testdata/content.golden", golden.String())
}

// compare holds text against a golden file.
func compare(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s is not as it is now; see the difference after `go test -update`:\n%s", path, text)
	}
}
