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
		"same":   {"{a: {b: [1, 2]}}", "{a: {b: [1, 2]}}", nil},
		"scalar": {"{a: {b: 1}}", "{a: {b: 2}}", []Change{{"a.b", 1.0, 2.0}}},
		"comes":  {"{a: {}}", "{a: {b: {c: x}}}", []Change{{"a.b", nil, map[string]any{"c": "x"}}}},
		"goes":   {"{a: true}", "{}", []Change{{"a", true, nil}}},
		"kind":   {"{a: {b: 1}}", "{a: [1]}", []Change{{"a", map[string]any{"b": 1.0}, []any{1.0}}}},
		"by name": {
			"{l: [{name: a, v: 1}, {name: b, v: 2}]}", "{l: [{name: b, v: 3}, {name: a, v: 1}]}",
			[]Change{{"l[b].v", 2.0, 3.0}},
		},
		"one less": {
			"{l: [{name: a}, {name: b}]}", "{l: [{name: b}]}", []Change{{"l[a]", map[string]any{"name": "a"}, nil}},
		},
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
	template := object(t,
		"{domain: {cpu: {cores: 4}}, volumes: [{name: root, containerDisk: {image: x}}, {name: new, "+
			"emptyDisk: {capacity: 1Gi}}], nodeSelector: {a: b}}")
	instance := object(t,
		"{domain: {cpu: {cores: 2, sockets: 1}, machine: {type: q35}}, volumes: [{name: root, "+
			"containerDisk: {image: x, imagePullPolicy: Always}}, {name: plugged}]}")
	if got := strings.Join(Beyond(template, instance), " "); got != "domain.cpu.cores nodeSelector volumes[new]" {
		t.Errorf("%s", got)
	}
	if got := Beyond(object(t, "{domain: {cpu: {cores: 2}}}"), instance); len(got) != 0 {
		t.Errorf("a template that asks for what there is: %v", got)
	}
}

func TestEffectOf(t *testing.T) {
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
		{
			Change{Path: "spec.template.metadata.labels.app"},
			"restart the instance and its pod have it from their next start on", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", After: "down"},
			"live pulls its cable", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", Before: "down"},
			"live plugs its cable in", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", After: "absent"},
			"hotplug unplugs the interface", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.devices.interfaces[red].state", Before: "absent", After: "up"},
			"hotplug plugs the interface in, for which the guest may have to migrate", "start",
		},
		{
			Change{
				Path:  "spec.template.spec.domain.devices.interfaces[red]",
				After: map[string]any{"name": "red", "bridge": map[string]any{}},
			},
			"migration plugged in when the guest has migrated, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{
				Path:  "spec.template.spec.domain.devices.interfaces[red]",
				After: map[string]any{"name": "red", "masquerade": map[string]any{}},
			},
			"restart", "start",
		},
		{
			Change{
				Path:   "spec.template.spec.domain.devices.interfaces[red]",
				Before: map[string]any{"name": "red", "state": "absent"},
			},
			"live the guest has unplugged it", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.devices.interfaces[red]", Before: map[string]any{"name": "red"}},
			"restart", "start",
		},
		{
			Change{
				Path:  "spec.template.spec.networks[red]",
				After: map[string]any{"name": "red", "multus": map[string]any{"networkName": "n"}},
			},
			"migration plugged in when the guest has migrated, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.networks[red].multus.networkName", Before: "a", After: "b"},
			"migration connected to it when the guest has migrated, if its interface has bridge: {}, " +
				"unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.networks[red].multus.default", After: true}, "restart", "start",
		},
		{Change{Path: "spec.template.spec.domain.devices.interfaces[red].model", After: "e1000"}, "restart", "start"},
		{
			Change{Path: "spec.template.spec.domain.cpu.sockets", Before: 1.0, After: 2.0},
			"hotplug up to maxSockets, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.cpu.sockets", Before: int64(1), After: int64(2)},
			"hotplug up to maxSockets, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.cpu.sockets", Before: 2.0, After: 1.0},
			"restart a guest that runs keeps its sockets", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.cpu.sockets", After: 2.0},
			"restart a guest that runs keeps its sockets", "start",
		},
		{
			Change{Path: "spec.template.spec.domain.memory.guest", Before: "1Gi", After: "2Gi"},
			"hotplug between what the guest was started with and maxGuest, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.instancetype.name"},
			"restart what is only more sockets and memory, within the guest's bounds, at once", "start",
		},
		{Change{Path: "spec.preference"}, "restart", "start"},
		{Change{Path: "spec.templates"}, "live", "live"},
		{
			Change{Path: "spec.template.spec.nodeSelector[kubernetes.io/os]"},
			"live the guest stays where it is, and moves by it, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.affinity.nodeAffinity"},
			"live the guest stays where it is, and moves by it, unless vmRolloutStrategy is Stage", "start",
		},
		{
			Change{Path: "spec.template.spec.tolerations[0].key"},
			"live the guest stays where it is, and moves by it, unless vmRolloutStrategy is Stage", "start",
		},
		{Change{Path: "spec.template.spec.topologySpreadConstraints[0]"}, "restart", "start"},
	} {
		for running, want := range map[bool]string{true: test.running, false: test.stopped} {
			effect, note := EffectOf(test.change, running)
			if got := strings.TrimSpace(string(effect) + " " + note); got != want {
				t.Errorf("%s, running %v: %q, want %q", test.change.Path, running, got, want)
			}
		}
	}
}

// The disk of a guest that runs goes to another claim by a migration, where the VM says so; one that cannot be copied,
// and one of a VM that does not say so, is another one at the next start.
func TestEffectOfClaims(t *testing.T) {
	vm := func(strategy, disk, volume string) map[string]any {
		return object(t, "{spec: {updateVolumesStrategy: "+strategy+", template: {spec: {volumes: [{name: a, "+volume+
			"}], domain: {devices: {disks: [{name: a, "+disk+"}]}}}}}}")
	}
	claim := func(name, more string) string { return "persistentVolumeClaim: {claimName: " + name + more + "}" }
	one, two := claim("c", ""), claim("d", "")
	plugged, other := claim("c", ", hotpluggable: true"), claim("d", ", hotpluggable: true")
	const plain = "disk: {bus: virtio}"
	for name, test := range map[string]struct {
		strategy, disk, before, after string
		want                          Effect
	}{
		"copied":        {"Migration", plain, one, two, Migration},
		"a DataVolume":  {"Migration", plain, one, "dataVolume: {name: d}", Migration},
		"replaced":      {"Replacement", plain, one, two, Restart},
		"shareable":     {"Migration", plain + ", shareable: true", one, two, Restart},
		"lun":           {"Migration", "lun: {}", one, two, Restart},
		"read-only":     {"Migration", "disk: {readonly: true}", one, two, Restart},
		"other content": {"Migration", plain, one, "containerDisk: {image: i}", Restart},
		"plugged in":    {"Migration", plain, plugged, other, Migration},
		"plugged LUN":   {"Migration", "lun: {}", plugged, other, Restart},
		"a DataVolume that is plugged in": {
			"Migration", plain, plugged, "dataVolume: {name: d, hotpluggable: true}", Migration,
		},
		"plugged in, replaced": {"Replacement", plain, plugged, other, Hotplug},
		"a disc":               {"Migration", "cdrom: {}", plugged, other, Hotplug},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := vm(test.strategy, test.disk, test.before), vm(test.strategy, test.disk, test.after)
			for _, c := range Compare(before, after) {
				if got, note := EffectIn(c, before, after, true); got != test.want {
					t.Errorf("%s: %s %s, want %s", c.Path, got, note, test.want)
				}
				if got, _ := EffectIn(c, before, after, false); got != Start {
					t.Errorf("%s of a VM that is stopped: %s", c.Path, got)
				}
			}
		})
	}
}

func TestEffectIn(t *testing.T) {
	vm := func(text string) map[string]any { return object(t, "{spec: {template: {spec: "+text+"}}}") }
	with := func(disk, volume string) string {
		out := "{name: root}"
		if volume != "" {
			out += ", {name: a, " + volume + "}"
		}
		disks := "{name: root, disk: {bus: virtio}}"
		if disk != "" {
			disks += ", {name: a, " + disk + "}"
		}
		return "{volumes: [" + out + "], domain: {devices: {disks: [" + disks + "]}}}"
	}
	const (
		claim, other = "persistentVolumeClaim: {claimName: c, hotpluggable: true}",
			"persistentVolumeClaim: {claimName: d, hotpluggable: true}"
		data, fixed = "dataVolume: {name: c, hotpluggable: true}", "persistentVolumeClaim: {claimName: c}"
		disk, sata  = "disk: {bus: scsi}", "cdrom: {}"
		scsi        = "cdrom: {bus: scsi}"
	)
	const volumePath, diskPath = "spec.template.spec.volumes[a]", "spec.template.spec.domain.devices.disks[a]"
	for name, test := range map[string]struct {
		before, after string
		// want are the changes with their effects, by path without what goes before.
		want string
	}{
		"a disk comes": {
			with("", ""), with(disk, claim), "disk: hotplug plugs the disk in; volume: hotplug plugs the disk in",
		},
		"a disk goes": {
			with(disk, data), with("", ""), "disk: hotplug unplugs the disk; volume: hotplug unplugs the disk",
		},
		"another claim": {
			with(disk, claim), with(disk, other),
			"volume.persistentVolumeClaim.claimName: hotplug unplugs the disk and plugs it in as it is then",
		},
		"another serial": {
			with(disk, claim), with(disk+", serial: s", claim),
			"disk.serial: hotplug unplugs the disk and plugs it in as it is then",
		},
		"for good": {with("", ""), with(disk, fixed), "disk: restart; volume: restart"},
		"no more":  {with(disk, claim), with(disk, fixed), "volume.persistentVolumeClaim.hotpluggable: restart"},
		"inject":   {with(sata, ""), with(sata, claim), "volume: hotplug puts the disc into the drive"},
		"eject":    {with(sata, claim), with(sata, ""), "volume: hotplug takes the disc out of the drive"},
		"swap": {
			with(sata, claim), with(sata, other),
			"volume.persistentVolumeClaim.claimName: hotplug swaps the disc in the drive",
		},
		"drive comes": {with("", ""), with(sata, ""), "disk: restart " + noteDrive},
		"drive and disc": {
			with("", ""), with(sata, claim), "disk: restart " + noteDrive + "; volume: restart " + noteDrive,
		},
		"drive goes": {with(sata, ""), with("", ""), "disk: restart " + noteDrive},
		"both go": {
			with(sata, claim), with("", ""),
			"disk: restart " + noteDrive + "; volume: hotplug takes the disc out of the drive",
		},
		"on scsi": {
			with("", ""), with(scsi, claim), "disk: hotplug plugs the disk in; volume: hotplug plugs the disk in",
		},
		"empty on scsi": {with("", ""), with(scsi, ""), "disk: restart " + noteDrive},
		"goes from scsi": {
			with(scsi, claim), with("", ""), "disk: hotplug unplugs the disk; volume: hotplug unplugs the disk",
		},
		"inject on scsi":  {with(scsi, ""), with(scsi, claim), "volume: hotplug puts the disc into the drive"},
		"drive changes":   {with(sata, ""), with(sata+", serial: s", ""), "disk.serial: restart " + noteDrive},
		"another volume":  {with("", ""), with("", "emptyDisk: {}"), "volume: restart"},
		"another's disk":  {with("", "emptyDisk: {}"), with("disk: {bus: sata}", "emptyDisk: {}"), "disk: restart"},
		"disk, no volume": {with("", ""), with(disk, ""), "disk: restart"},
	} {
		before, after := vm(test.before), vm(test.after)
		var got []string
		for _, c := range Compare(before, after) {
			effect, note := EffectIn(c, before, after, true)
			path := strings.Replace(strings.Replace(c.Path, volumePath, "volume", 1), diskPath, "disk", 1)
			got = append(got, strings.TrimSpace(path+": "+string(effect)+" "+note))
			if effect, _ := EffectIn(c, before, after, false); effect != Start {
				t.Errorf("%s: %s without a guest", name, effect)
			}
		}
		if text := strings.Join(got, "; "); text != test.want {
			t.Errorf("%s: %s", name, text)
		}
	}
	if effect, _ := EffectIn(Change{Path: "metadata.labels.a"}, nil, nil, true); effect != Live {
		t.Errorf("a label: %s", effect)
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		path, of string
		want     bool
	}{
		{"spec.a", "spec.a", true},
		{"spec.a.b", "spec.a", true},
		{"spec.a[b].c", "spec.a", true},
		{"spec.ab", "spec.a", false},
		{"spec", "spec.a", false},
		{"other", "spec", false},
	} {
		if got := Within(tc.path, tc.of); got != tc.want {
			t.Errorf("%s below %s: %v", tc.path, tc.of, got)
		}
	}
}
