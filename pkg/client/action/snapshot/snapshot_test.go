package snapshot

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

const (
	snapshots = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots"
	restores  = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores"
	machines  = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/"
	instances = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/"
)

func snap(change func(*snapshotv1beta1.VirtualMachineSnapshot)) *snapshotv1beta1.VirtualMachineSnapshot {
	s := New("default", "demo", "snap", Options{})
	s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.Succeeded, ReadyToUse: new(true),
		SnapshotVolumes: &snapshotv1beta1.SnapshotVolumesLists{IncludedVolumes: []string{"disk"}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func demo() *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{
		{Name: "disk", VolumeSource: claim},
		{Name: "logs", VolumeSource: claim},
		{Name: "boot", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}},
	}
	vm.Status.VolumeSnapshotStatuses = []v1.VolumeSnapshotStatus{
		{Name: "disk", Enabled: true}, {Name: "logs", Reason: "no class"}, {Name: "boot", Reason: "not supported"},
	}
	return vm
}

func TestAnew(t *testing.T) {
	if anew := Anew(demo()); !slices.Equal(anew, []string{"boot"}) {
		t.Errorf("made anew: %v", anew)
	}
	if anew := Anew(&v1.VirtualMachine{}); anew != nil {
		t.Errorf("made anew of nothing: %v", anew)
	}
}

func TestCheckWhole(t *testing.T) {
	whole := demo()
	whole.Status.VolumeSnapshotStatuses = whole.Status.VolumeSnapshotStatuses[:1]
	const text = "volumes of VM default/demo that cannot be snapshotted: logs (no class); "
	late := demo()
	late.Status.VolumeSnapshotStatuses[0] = v1.VolumeSnapshotStatus{
		Name: "disk", Reason: "PVC claim is bound when the VM is started for the first time",
	}
	const yet = "volumes of VM default/demo that cannot be snapshotted yet: disk (PVC claim is bound when the VM is " +
		"started for the first time); start it with `virtctl start demo -n default`"
	for name, tc := range map[string]struct {
		vm             *v1.VirtualMachine
		partial        bool
		warning, wrong string
	}{
		"whole":              {vm: whole},
		"partial":            {vm: demo(), partial: true, warning: text + "they are left out"},
		"refused":            {vm: demo(), wrong: text + "give --partial"},
		"not bound":          {vm: late, wrong: yet},
		"not bound, partial": {vm: late, partial: true, wrong: yet},
	} {
		warning, err := CheckWhole(tc.vm, tc.partial, "give --partial")
		if warning != tc.warning || (err == nil) != (tc.wrong == "") || err != nil && err.Error() != tc.wrong {
			t.Errorf("%s: %q, %v", name, warning, err)
		}
	}
}

func TestLook(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*snapshotv1beta1.VirtualMachineSnapshot)
		options RestoreOptions
		runs    bool
		wrong   string
		exists  bool
	}{
		"over its VM": {exists: true},
		"not ready": {
			change: func(s *snapshotv1beta1.VirtualMachineSnapshot) { s.Status.ReadyToUse = nil },
			wrong:  "not ready to be restored",
		},
		"it runs":       {runs: true, wrong: "VM default/demo runs"},
		"it stops":      {runs: true, wrong: "wait with `virtctl wait demo --for=stopped -n default`"},
		"stopped first": {runs: true, options: RestoreOptions{Stop: true}, exists: true},
		"another":       {runs: true, options: RestoreOptions{Target: "copy", Patches: []string{"{}"}}},
		"a name that is there": {
			options: RestoreOptions{Target: "copy", VolumePolicy: "PrefixTargetName"},
			wrong:   "claim copy-disk, which volume disk would get, is there already",
		},
		"patched": {options: RestoreOptions{Patches: []string{"{}"}}, wrong: "VM default/demo exists"},
	} {
		t.Run(name, func(t *testing.T) {
			api := clienttest.New(t)
			api.Put(snapshots+"/snap", snap(tc.change))
			vm := demo()
			vm.Spec.Running, vm.Spec.RunStrategy = nil, new(v1.RunStrategyHalted)
			if name == "it runs" {
				vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
			}
			api.Put(machines+"demo", vm)
			api.Put("/api/v1/namespaces/default/persistentvolumeclaims/copy-disk", metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
				ObjectMeta: metav1.ObjectMeta{Name: "copy-disk"},
			})
			if tc.runs {
				api.Put(instances+"demo",
					&v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}})
			}
			plan, err := Look(t.Context(), api.Client(), "default", "snap", tc.options)
			switch {
			case tc.wrong != "":
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%v", err)
				}
			case err != nil || plan.Exists != tc.exists || plan.Runs != (tc.runs && tc.options.Target == ""):
				t.Errorf("%+v %v", plan, err)
			case tc.exists && strings.Join(plan.Loses, " ") != "logs":
				t.Errorf("loses %v", plan.Loses)
			}
		})
	}
}

func TestClusterWithoutSnapshots(t *testing.T) {
	api := clienttest.New(t)
	api.Put(snapshots, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	c := api.Client()
	_, list := List(t.Context(), c, "default", "", "")
	_, create := Create(t.Context(), c, New("default", "demo", "snap", Options{}), false)
	for _, err := range []error{list, create} {
		if !errors.Is(err, ErrNoKinds) || apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
	}
}

func TestRequests(t *testing.T) {
	api := clienttest.New(t)
	var bodies []string
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that has gone
	})
	api.Put(snapshots, echo)
	api.Put(restores, echo)
	c := api.Client()
	options := Options{
		Deadline: &metav1.Duration{Duration: time.Minute}, Policy: snapshotv1beta1.VirtualMachineSnapshotContentRetain,
	}
	if _, err := Create(t.Context(), c, New("default", "demo", "snap", options), false); err != nil {
		t.Fatal(err)
	}
	r := NewRestore("default", "back", "snap", "copy",
		RestoreOptions{Stop: true, Keep: true, Ownership: "None", VolumePolicy: "InPlace", Patches: []string{"{}"}})
	if _, err := CreateRestore(t.Context(), c, r, false); err != nil {
		t.Fatal(err)
	}
	if undo := NewUndo("undo", r); r.Annotations["restore.virtkit.io/keep-replaced"] != "true" ||
		undo.Annotations["restore.virtkit.io/undo"] != "back" || undo.Spec.Target.Name != "copy" ||
		undo.Spec.VirtualMachineSnapshotName != "snap" || undo.Spec.VolumeRestorePolicy != nil {
		t.Errorf("restore %v, undo %+v", r.Annotations, undo)
	}
	for i, want := range []string{
		`{"deletionPolicy":"Retain","failureDeadline":"1m0s","source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"demo"}}`,
		`{"patches":["{}"],"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"copy"},"targetReadinessPolicy":"StopTarget","virtualMachineSnapshotName":"snap","volumeOwnershipPolicy":"None","volumeRestorePolicy":"InPlace"}`,
	} {
		var object struct{ Spec, Status json.RawMessage }
		if err := json.Unmarshal([]byte(bodies[i]), &object); err != nil || string(object.Spec) != want ||
			object.Status != nil {
			t.Errorf("%s, status %s, %v; want %s", object.Spec, object.Status, err, want)
		}
	}
}

// changing answers a list with the object as it is, and a watch with what it becomes.
func changing(t *testing.T, list any, changes ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
			return
		}
		for _, change := range changes {
			if err := json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": change}); err != nil {
				t.Error(err)
			}
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

func listOf(items ...snapshotv1beta1.VirtualMachineSnapshot) *snapshotv1beta1.VirtualMachineSnapshotList {
	return &snapshotv1beta1.VirtualMachineSnapshotList{
		TypeMeta: metav1.TypeMeta{
			APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshotList",
		},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items,
	}
}

func TestWait(t *testing.T) {
	pending := snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) { s.Status = nil })
	failed := snap(func(s *snapshotv1beta1.VirtualMachineSnapshot) {
		s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
			Phase: snapshotv1beta1.Failed, Error: &snapshotv1beta1.Error{Message: new("too late")},
		}
	})
	for name, tc := range map[string]struct {
		becomes []any
		wrong   string
		is      error
	}{
		"taken":  {becomes: []any{pending, snap(nil)}},
		"failed": {becomes: []any{failed}, wrong: "snapshot default/snap failed: too late"},
		"late":   {wrong: "waiting for snapshot default/snap: Pending", is: action.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			api := clienttest.New(t)
			api.Put(snapshots, changing(t, listOf(*pending), tc.becomes...))
			ctx, end := clienttest.Late()
			var stages []string
			_, err := Wait(ctx, api.Client(), "default", "snap", func(stage string) {
				stages = append(stages, stage)
				if tc.is != nil {
					end()
				}
			})
			switch {
			case tc.wrong == "" && (err != nil || stages[len(stages)-1] != "Succeeded"):
				t.Errorf("%v, stages %v", err, stages)
			case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("%v", err)
			case tc.is != nil && !errors.Is(err, tc.is):
				t.Errorf("%v is no timeout", err)
			}
		})
	}
	api := clienttest.New(t)
	api.Put(snapshots, listOf())
	if _, err := Wait(t.Context(), api.Client(), "default", "snap", func(string) {}); !errors.Is(err,
		action.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
}

// A snapshot with memory has the guest go on when it is restored over its VM, and only then.
func TestMemory(t *testing.T) {
	if got := New("default", "demo", "snap",
		Options{Memory: true}).Annotations; got["virtkit.io/include-memory"] != "true" {
		t.Errorf("%v", got)
	}
	if got := New("default", "demo", "snap", Options{}).Annotations; len(got) > 0 {
		t.Errorf("without memory: %v", got)
	}
	with := func(indications ...snapshotv1beta1.Indication) func(*snapshotv1beta1.VirtualMachineSnapshot) {
		return func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.Status.SourceIndications = nil
			for _, i := range indications {
				s.Status.SourceIndications = append(s.Status.SourceIndications,
					snapshotv1beta1.SourceIndication{Indication: i})
			}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*snapshotv1beta1.VirtualMachineSnapshot)
		options RestoreOptions
		want    bool
	}{
		"over its VM": {with("Memory"), RestoreOptions{}, true},
		"another":     {with("Memory"), RestoreOptions{Target: "copy"}, false},
		"none":        {with("Online"), RestoreOptions{}, false},
		"lapsed":      {with("Memory", snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication), RestoreOptions{}, false},
	} {
		api := clienttest.New(t)
		api.Put(snapshots+"/snap", snap(tc.change))
		api.Put(machines+"demo", demo())
		if plan, err := Look(t.Context(), api.Client(), "default", "snap", tc.options); err != nil ||
			plan.Resumes != tc.want {
			t.Errorf("%s: %+v %v", name, plan, err)
		}
	}
}
