package set

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestChanges(t *testing.T) {
	cpu := func(c CPU) func() (Change, error) { return func() (Change, error) { return SetCPU(c) } }
	with := func(f func(string) (Change, error), value string) func() (Change, error) {
		return func() (Change, error) { return f(value) }
	}
	for name, c := range map[string]struct {
		spec   string
		change func() (Change, error)
		want   string // the spec, or the error
	}{
		"cpus": {"{}", cpu(CPU{VCPUs: 4}), `{"template":{"spec":{"domain":{"cpu":{"sockets":4}}}}}`},
		"cpus of cores": {
			"{template: {spec: {domain: {cpu: {cores: 2, sockets: 1}}}}}", cpu(CPU{VCPUs: 4}),
			`{"template":{"spec":{"domain":{"cpu":{"cores":2,"sockets":2}}}}}`,
		},
		"cpus and cores": {
			"{template: {spec: {domain: {cpu: {cores: 2}}}}}", cpu(CPU{VCPUs: 8, Cores: 4}),
			`{"template":{"spec":{"domain":{"cpu":{"cores":4,"sockets":2}}}}}`,
		},
		"threads": {
			"{template: {spec: {domain: {cpu: {cores: 2}}}}}", cpu(CPU{Threads: 2}),
			`{"template":{"spec":{"domain":{"cpu":{"cores":2,"threads":2}}}}}`,
		},
		"odd": {
			"{template: {spec: {domain: {cpu: {cores: 2}}}}}", cpu(CPU{VCPUs: 3}),
			"3 vCPUs are no whole number of sockets, which have 2 each",
		},
		"typed": {
			"{instancetype: {name: small}}", cpu(CPU{VCPUs: 3}),
			`come from the instance type "small"; choose another, or '' for none: virtctl set instancetype web NAME`,
		},
		"memory": {"{}", with(SetMemory, "2048Mi"), `{"template":{"spec":{"domain":{"memory":{"guest":"2Gi"}}}}}`},
		"the same memory": {
			"{template: {spec: {domain: {memory: {guest: 2048Mi}}}}}", with(SetMemory, "2Gi"),
			`{"template":{"spec":{"domain":{"memory":{"guest":"2048Mi"}}}}}`,
		},
		"negative memory":  {"{}", with(SetMemory, "-2Gi"), "less than 1Mi"},
		"memory of a type": {"{instancetype: {name: small}}", with(SetMemory, "2Gi"), `instance type "small"`},
		"run strategy":     {"{running: true}", with(SetRunStrategy, "halted"), `{"runStrategy":"Halted"}`},
		"no run strategy":  {"{}", with(SetRunStrategy, "Never"), `"Never" is not one of Always`},
		"eviction": {
			"{}", with(SetEvictionStrategy, "None"), `{"template":{"spec":{"evictionStrategy":"None"}}}`,
		},
		"type": {
			"{instancetype: {name: a, revisionName: r}}", with(SetInstancetype, "b"),
			`{"instancetype":{"kind":"virtualmachineclusterinstancetype","name":"b"}}`,
		},
		"the same type": {
			"{instancetype: {name: a, revisionName: r}}", with(SetInstancetype, "a"),
			`{"instancetype":{"name":"a","revisionName":"r"}}`,
		},
		"type of a namespace": {
			"{}", with(SetPreference, "VirtualMachinePreference/p"),
			`{"preference":{"kind":"virtualmachinepreference","name":"p"}}`,
		},
		"type taken away": {"{instancetype: {name: a}, running: true}", with(SetInstancetype, ""), `{"running":true}`},
		"no type":         {"{}", with(SetPreference, "virtualmachinepreference/"), "is not NAME or"},
	} {
		vm := &unstructured.Unstructured{Object: map[string]any{}}
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(c.spec), &spec); err != nil {
			t.Fatal(err)
		}
		vm.Object["metadata"], vm.Object["spec"] = map[string]any{"name": "web"}, spec
		change, err := c.change()
		if err == nil {
			err = change(vm)
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else if data, err := json.Marshal(vm.Object["spec"]); err == nil {
			got = string(data)
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// busy is a server with one VM, which others change while it is read.
type busy struct {
	cores, others int // sockets as they are, and how often others will change them
	conflicts     int // how often the status is written meanwhile
	stored        []string
}

func (b *busy) Raw(context.Context, string, string, string) (map[string]any, error) {
	return map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
		"metadata": map[string]any{"name": "web", "namespace": "ns", "resourceVersion": "7"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"domain": map[string]any{"cpu": map[string]any{"cores": float64(b.cores)}},
		}}},
	}, nil
}

func (b *busy) TryPatch(ctx context.Context, _, _, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions,
) (map[string]any, error) {
	then, err := b.Raw(ctx, "", "", "")
	then["spec"] = map[string]any{"changed": true}
	if b.others > 0 {
		b.others--
		b.cores++
	}
	return then, err
}

func (b *busy) Patch(_ context.Context, _, _, _ string, _ types.PatchType, patch []byte, _ bool, _ runtime.Object,
) error {
	if b.conflicts > 0 {
		b.conflicts--
		return apierrors.NewConflict(schema.GroupResource{}, "web", nil)
	}
	b.stored = append(b.stored, string(patch))
	return nil
}

func (*busy) TryCreate(context.Context, string, string, []byte) (map[string]any, error) {
	return nil, nil
}

func (*busy) VMI(context.Context, string, string) (*v1.VirtualMachineInstance, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, "web")
}

func (*busy) Read(context.Context, string, url.Values, any) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
}

func (*busy) Expand(context.Context, string, []byte) (*v1.VirtualMachine, error) { return nil, nil }

func (*busy) KubeVirtList(context.Context) (*v1.KubeVirtList, error) { return &v1.KubeVirtList{}, nil }

// What others change at the same time is kept: the change is made anew from what they left.
func TestOthersChangeIt(t *testing.T) {
	change, err := SetCPU(CPU{VCPUs: 12})
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{cores: 2, others: 1, conflicts: 2}
	result, err := Run(t.Context(), b, "ns", "web", change, Store)
	if err != nil || len(result.Verdict.Changes) == 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	const want = `{"metadata":{"resourceVersion":"7"},"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":4}}}}}}`
	if strings.Join(b.stored, "\n") != want {
		t.Errorf("%s", b.stored)
	}
	b = &busy{cores: 2, others: 100}
	if _, err := Run(t.Context(), b, "ns", "web", change, Store); err == nil || len(b.stored) > 0 {
		t.Errorf("%v, %s", err, b.stored)
	}
	b = &busy{cores: 2}
	if _, err := Run(t.Context(), b, "ns", "web", change, Ask); err != nil || len(b.stored) > 0 {
		t.Errorf("%v, %s", err, b.stored)
	}
}
