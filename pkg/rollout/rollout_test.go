package rollout

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          []Change
	}{
		"same":     {"{a: {b: [1, 2]}}", "{a: {b: [1, 2]}}", nil},
		"scalar":   {"{a: {b: 1}}", "{a: {b: 2}}", []Change{{"a.b", 1.0, 2.0}}},
		"comes":    {"{a: {}}", "{a: {b: {c: x}}}", []Change{{"a.b", nil, map[string]any{"c": "x"}}}},
		"goes":     {"{a: true}", "{}", []Change{{"a", true, nil}}},
		"kind":     {"{a: {b: 1}}", "{a: [1]}", []Change{{"a", map[string]any{"b": 1.0}, []any{1.0}}}},
		"by name":  {"{l: [{name: a, v: 1}, {name: b, v: 2}]}", "{l: [{name: b, v: 3}, {name: a, v: 1}]}", []Change{{"l[b].v", 2.0, 3.0}}},
		"one less": {"{l: [{name: a}, {name: b}]}", "{l: [{name: b}]}", []Change{{"l[a]", map[string]any{"name": "a"}, nil}}},
		"new list": {"{}", "{l: [{name: a}], e: []}", []Change{{"l[a]", nil, map[string]any{"name": "a"}}}},
		"old list": {"{l: [1]}", "{}", []Change{{"l[0]", 1.0, nil}}},
		"by index": {"{l: [1, 2]}", "{l: [1, 3, 4]}", []Change{{"l[1]", 2.0, 3.0}, {"l[2]", nil, 4.0}}},
		"twice":    {"{l: [{name: a}, {name: a}]}", "{l: [{name: a}, {name: b}]}", []Change{{"l[1].name", "a", "b"}}},
		"key":      {"{labels: {a.b/c: x}}", "{labels: {a.b/c: z}}", []Change{{"labels[a.b/c]", "x", "z"}}},
	} {
		if got := Compare(object(t, test.before), object(t, test.after)); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestBeyond(t *testing.T) {
	template := object(t, "{domain: {cpu: {cores: 4}}, volumes: [{name: root, containerDisk: {image: x}}, {name: new, emptyDisk: {capacity: 1Gi}}], nodeSelector: {a: b}}")
	instance := object(t, "{domain: {cpu: {cores: 2, sockets: 1}, machine: {type: q35}}, volumes: [{name: root, containerDisk: {image: x, imagePullPolicy: Always}}, {name: plugged}]}")
	if got := strings.Join(Beyond(template, instance), " "); got != "domain.cpu.cores nodeSelector volumes[new]" {
		t.Errorf("%s", got)
	}
	if got := Beyond(object(t, "{domain: {cpu: {cores: 2}}}"), instance); len(got) != 0 {
		t.Errorf("a template that asks for what there is: %v", got)
	}
}

func TestEffectOf(t *testing.T) {
	pluggable := map[string]any{"name": "a", "persistentVolumeClaim": map[string]any{"claimName": "c", "hotpluggable": true}}
	for _, test := range []struct {
		change Change
		// running and stopped are the effects and notes in either case.
		running, stopped string
	}{
		{Change{Path: "metadata.labels.app"}, "live", "live"},
		{Change{Path: "spec.runStrategy", After: "Halted"}, "live stops the guest", "live"},
		{Change{Path: "spec.runStrategy", After: "Always"}, "live", "live starts the guest"},
		{Change{Path: "spec.runStrategy", After: "Manual"}, "live", "live"},
		{Change{Path: "spec.running", After: false}, "live stops the guest", "live"},
		{Change{Path: "spec.running", After: true}, "live", "live starts the guest"},
		{Change{Path: "spec.updateVolumesStrategy"}, "live", "live"},
		{Change{Path: "spec.template.spec.domain.cpu.cores"}, "restart", "start"},
		{Change{Path: "spec.template.spec.volumes[a]", After: pluggable}, "restart addvolume would plug it in at once", "start"},
		{Change{Path: "spec.template.spec.volumes[a]", Before: pluggable}, "restart", "start"},
		{Change{Path: "spec.template.metadata.labels.app"}, "restart the instance and its pod have it from their next start on", "start"},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", After: "down"}, "live pulls its cable", "start"},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", Before: "down"}, "live plugs its cable in", "start"},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", After: "absent"}, "hotplug unplugs the interface", "start"},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", Before: "absent", After: "up"}, "restart an interface that was unplugged comes back then", "start"},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].model", After: "e1000"}, "restart", "start"},
		{Change{Path: "spec.template.spec.domain.cpu.sockets", Before: 1.0, After: 2.0}, "hotplug up to maxSockets, unless vmRolloutStrategy is Stage", "start"},
		{Change{Path: "spec.template.spec.domain.cpu.sockets", Before: int64(1), After: int64(2)}, "hotplug up to maxSockets, unless vmRolloutStrategy is Stage", "start"},
		{Change{Path: "spec.template.spec.domain.cpu.sockets", Before: 2.0, After: 1.0}, "restart a guest that runs keeps its sockets", "start"},
		{Change{Path: "spec.template.spec.domain.cpu.sockets", After: 2.0}, "restart a guest that runs keeps its sockets", "start"},
		{Change{Path: "spec.template.spec.domain.memory.guest", Before: "1Gi", After: "2Gi"}, "hotplug between what the guest was started with and maxGuest, unless vmRolloutStrategy is Stage", "start"},
		{Change{Path: "spec.instancetype.name"}, "restart what is only more sockets and memory, within the guest's bounds, at once", "start"},
		{Change{Path: "spec.preference"}, "restart", "start"},
		{Change{Path: "spec.templates"}, "live", "live"},
	} {
		for running, want := range map[bool]string{true: test.running, false: test.stopped} {
			effect, note := EffectOf(test.change, running)
			if got := strings.TrimSpace(string(effect) + " " + note); got != want {
				t.Errorf("%s, running %v: %q, want %q", test.change.Path, running, got, want)
			}
		}
	}
}
