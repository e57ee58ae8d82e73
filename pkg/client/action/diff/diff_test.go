package diff

import (
	"context"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// world has one VM, and answers a dry run with what it is told to.
type world struct {
	live, then map[string]any
	running    bool
	vmi        v1.VirtualMachineInstance
	strategy   v1.VMRolloutStrategy
	patches    []string
	// claims are by path; nil are not to be read.
	claims map[string]corev1.PersistentVolumeClaim
}

func (w *world) Raw(_ context.Context, kind, _, name string) (map[string]any, error) {
	if w.live == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return w.live, nil
}

func (w *world) TryPatch(_ context.Context, _, _, _ string, kind types.PatchType, patch []byte,
	opts metav1.PatchOptions,
) (map[string]any, error) {
	w.patches = append(w.patches, string(kind)+" "+opts.FieldManager+" "+string(patch))
	return w.then, nil
}

func (w *world) TryCreate(_ context.Context, kind, namespace string, _ []byte) (map[string]any, error) {
	w.patches = append(w.patches, "create "+kind+" "+namespace)
	return map[string]any{}, nil
}

func (w *world) VMI(_ context.Context, _, name string) (*v1.VirtualMachineInstance, error) {
	if !w.running {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return w.vmi.DeepCopy(), nil
}

func (*world) Expand(context.Context, string, []byte) (*v1.VirtualMachine, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
}

func (w *world) Read(_ context.Context, path string, _ url.Values, into any) error {
	claim, there := w.claims[path]
	if w.claims == nil {
		return apierrors.NewForbidden(schema.GroupResource{}, path, nil)
	}
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	*into.(*corev1.PersistentVolumeClaim) = claim
	return nil
}

func (w *world) KubeVirtList(context.Context) (*v1.KubeVirtList, error) {
	if w.strategy == "unknown" {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}
	kv := v1.KubeVirt{}
	if w.strategy != "" {
		kv.Spec.Configuration.VMRolloutStrategy = new(w.strategy)
	}
	return &v1.KubeVirtList{Items: []v1.KubeVirt{kv}}, nil
}

func read(t *testing.T, text string) []map[string]any {
	t.Helper()
	objects, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestDiff(t *testing.T) {
	const manifest = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm}
spec: {runStrategy: Always, template: {spec: {domain: {cpu: {cores: 4}}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
`
	w := &world{running: true}
	w.live = read(t,
		"{metadata: {name: vm, resourceVersion: '1'}, spec: {runStrategy: Always, template: {spec: {domain: {cpu: "+
			"{cores: 2}}}}}, status: {x: 1}}")[0]
	w.then = read(t,
		"{metadata: {name: vm, resourceVersion: '2'}, spec: {runStrategy: Always, template: {spec: {domain: {cpu: "+
			"{cores: 4}}}}}, status: {x: 2}}")[0]
	report, err := Diff(t.Context(), w, read(t, manifest), Options{Namespace: "ns", FieldManager: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"kind":"DiffReport","apiVersion":"cli.virtkit.io/v1",` +
		`"objects":[{"kind":"VirtualMachine","namespace":"ns","name":"vm","exists":true,"running":true,` +
		`"changes":[{"path":"spec.template.spec.domain.cpu.cores","effect":"restart","before":2,"after":4}]}],` +
		`"skipped":[{"kind":"Secret","namespace":"ns","name":"s","exists":false,"running":false}]}`
	if string(data) != want || !report.Differs() {
		t.Errorf("%s", data)
	}
	wantPatch := `application/merge-patch+json kubectl {"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"template":{"spec":{"domain":{"cpu":{"cores":4}}}}}}`
	if got := strings.Join(w.patches, "\n"); got != wantPatch {
		t.Errorf("%s", got)
	}

	w.then = w.live
	report, err = Diff(t.Context(), w, read(t, manifest),
		Options{Namespace: "ns", ServerSide: true, FieldManager: "me"})
	if err != nil || report.Differs() || !strings.HasPrefix(w.patches[1], "application/apply-patch+yaml me {") {
		t.Errorf("%+v, %v, %q", report, err, w.patches)
	}

	w = &world{}
	report, err = Diff(t.Context(), w, read(t, manifest), Options{Namespace: "ns"})
	if err != nil || !report.Differs() || report.Objects[0].Exists || w.patches[0] != "create virtualmachines ns" {
		t.Errorf("%+v, %v, %q", report, err, w.patches)
	}
	if _, err := Diff(t.Context(), w, read(t, "{kind: VirtualMachine}"), Options{}); err == nil {
		t.Error("an object without a name is taken")
	}
}

// kubectl apply writes annotations into its own annotation even of a manifest that has none; applied again, that
// manifest removes no annotation that is another's.
func TestDiffWithoutAnnotations(t *testing.T) {
	w := &world{live: read(t, `{metadata: {name: vm, annotations: {virtkit.io/renamed-from: old,
		kubectl.kubernetes.io/last-applied-configuration:
		'{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"annotations":{},"name":"vm"}}'}}}`)[0]}
	w.then = w.live
	manifest := read(t, "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: vm}}")
	if _, err := Diff(t.Context(), w, manifest, Options{Namespace: "ns", FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.patches[0], "annotations") {
		t.Errorf("the annotations of others are removed: %s", w.patches[0])
	}
	if _, there := manifest[0]["metadata"].(map[string]any)["annotations"]; there {
		t.Error("the manifest was changed")
	}
	// What the manifest had, and has no longer, it does remove.
	w.live = read(t, `{metadata: {name: vm, annotations: {own: x, other: y,
		kubectl.kubernetes.io/last-applied-configuration: '{"metadata":{"annotations":{"own":"x"}}}'}}}`)[0]
	if _, err := Diff(t.Context(), w, manifest, Options{Namespace: "ns"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.patches[1], `"metadata":{"annotations":{"own":null}}`) {
		t.Errorf("its own annotation stays: %s", w.patches[1])
	}
}

// What is said of the size is what the guest that runs has room for, and what the installation does.
func TestDiffOfSize(t *testing.T) {
	template := func(domain string) map[string]any {
		return read(t, "{metadata: {name: vm}, spec: {runStrategy: Always, template: {spec: {domain: "+domain+"}}}}")[0]
	}
	vmi := v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 1, Threads: 1, MaxSockets: 4}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
	for name, c := range map[string]struct {
		before, after string
		strategy      v1.VMRolloutStrategy
		want          string
	}{
		"sockets": {
			"{memory: {guest: 128Mi}}", "{cpu: {sockets: 2}, memory: {guest: 128Mi}}", "",
			"domain.cpu hotplug if the node has no room, after a migration",
		},
		"memory": {
			"{memory: {guest: 128Mi}}", "{memory: {guest: 256Mi}}", "",
			"domain.memory.guest restart 256Mi is more than the 128Mi that the guest was started " +
				"with room for, maxGuest",
		},
		"staged": {
			"{cpu: {sockets: 1}}", "{cpu: {sockets: 2}}", v1.VMRolloutStrategyStage,
			"domain.cpu.sockets restart vmRolloutStrategy is Stage",
		},
		"unknown": {
			"{cpu: {sockets: 1}}", "{cpu: {sockets: 2}}", "unknown",
			"domain.cpu.sockets hotplug if the node has no room, after a migration; " +
				"unless vmRolloutStrategy is Stage, which your account may not read",
		},
	} {
		w := &world{running: true, live: template(c.before), then: template(c.after), vmi: vmi, strategy: c.strategy}
		report, err := Diff(t.Context(), w,
			read(t, "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: vm}}"), Options{})
		if err != nil || len(report.Objects[0].Changes) != 1 {
			t.Fatalf("%s: %+v, %v", name, report, err)
		}
		change := report.Objects[0].Changes[0]
		if got := strings.TrimPrefix(change.Path, "spec.template.spec.") + " " + string(change.Effect) + " " +
			change.Note; got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestThreeWay(t *testing.T) {
	for name, test := range map[string]struct{ original, modified, live, want string }{
		"nothing":         {"{a: 1}", "{a: 1}", "{a: 1, b: 2}", "{}"},
		"sets":            {"{}", "{a: {b: 2}}", "{a: {b: 1, c: 3}}", "{a: {b: 2}}"},
		"adds":            {"{}", "{a: {b: 2}}", "{}", "{a: {b: 2}}"},
		"removes its own": {"{a: {b: 1}, c: 1}", "{a: {}}", "{a: {b: 1, d: 2}, c: 1}", "{a: {b: null}, c: null}"},
		"leaves others'":  {"{}", "{a: {}}", "{a: {b: 1}}", "{}"},
		"replaces lists":  {"{l: [1]}", "{l: [1, 2]}", "{l: [1]}", "{l: [1, 2]}"},
		"removed already": {"{a: 1}", "{b: 1}", "{b: 1}", "{}"},
	} {
		one := func(text string) map[string]any {
			if text == "{}" {
				return map[string]any{}
			}
			return read(t, text)[0]
		}
		if got := threeWay(one(test.original), one(test.modified), one(test.live)); !reflect.DeepEqual(got,
			one(test.want)) {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

func TestRead(t *testing.T) {
	objects := read(t, "a: 1\n---\n# nothing\n---\n{\"kind\": \"List\", \"items\": [{\"b\": 1}, {\"c\": 1}]}\n")
	if len(objects) != 3 || objects[2]["c"] != 1.0 {
		t.Errorf("%v", objects)
	}
	for name, text := range map[string]string{
		"no YAML":   "a: [",
		"a list":    "- a",
		"too large": "a: " + strings.Repeat("x", maxManifest),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLastApplied(t *testing.T) {
	live := read(t, `{metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"a":1}'}}}`)[0]
	if got, err := lastApplied(live); err != nil || got["a"] != 1.0 {
		t.Errorf("%v, %v", got, err)
	}
	if len(visible(live)["metadata"].(map[string]any)["annotations"].(map[string]any)) != 0 {
		t.Error("kubectl's annotation counts")
	}
	broken := read(t, `{metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{'}}}`)[0]
	if _, err := lastApplied(broken); err == nil {
		t.Error("a broken annotation is taken")
	}
}

// What a copy will wait for is said by the claims as they are, and by nothing where they may not be read.
func TestDiffOfClaims(t *testing.T) {
	const vm = `{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: vm}, spec: {
		updateVolumesStrategy: Migration, template: {spec: {domain: {devices: {disks: [{name: a, disk: {}}]}},
		volumes: [{name: a, persistentVolumeClaim: {claimName: CLAIM}}]}}}}`
	at := func(claim string) []map[string]any { return read(t, strings.ReplaceAll(vm, "CLAIM", claim)) }
	const path = "/api/v1/namespaces/ns/persistentvolumeclaims/d"
	sized := func(size string) map[string]corev1.PersistentVolumeClaim {
		claim := corev1.PersistentVolumeClaim{}
		claim.Name = "d"
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return map[string]corev1.PersistentVolumeClaim{path: claim}
	}
	for name, c := range map[string]struct {
		claims map[string]corev1.PersistentVolumeClaim
		note   string
	}{
		"not readable": {nil, "copies the disk to the new claim"},
		"large":        {sized("1Gi"), "copies the disk to the new claim"},
		"too small": {sized("1Ki"), `copies the disk to the new claim, and waits for that: volume "a": ` +
			"PersistentVolumeClaim d has 1024 bytes and the guest's disk 1048576; use a larger claim"},
		"absent": {map[string]corev1.PersistentVolumeClaim{}, "copies the disk to the new claim, and waits for " +
			`that: volume "a": PersistentVolumeClaim d does not exist`},
	} {
		w := &world{running: true, live: at("c")[0], then: at("d")[0], claims: c.claims}
		data, err := json.Marshal(w.live)
		if err != nil {
			t.Fatal(err)
		}
		var typed v1.VirtualMachine
		if err := json.Unmarshal(data, &typed); err != nil {
			t.Fatal(err)
		}
		w.vmi.Spec = typed.Spec.Template.Spec
		w.vmi.Status.Phase = v1.Running
		w.vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "a", Size: 1 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
		}}
		report, err := Diff(t.Context(), w, at("d"), Options{Namespace: "ns"})
		if err != nil || len(report.Objects) != 1 || len(report.Objects[0].Changes) != 1 {
			t.Errorf("%s: %+v, %v", name, report, err)
			continue
		}
		if got := report.Objects[0].Changes[0]; got.Effect != rollout.Migration || got.Note != c.note {
			t.Errorf("%s: %s %q, want %q", name, got.Effect, got.Note, c.note)
		}
	}
}
