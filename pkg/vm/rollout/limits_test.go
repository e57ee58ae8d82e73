package rollout

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

const limitPath = "spec.template.metadata.annotations[disk.virtkit.io/root]"

// A change of limits alone is live, in whichever shape the objects differ by it; one that changes more is not.
func TestEffectOfLimits(t *testing.T) {
	const root, web = "disk.virtkit.io/root: bps=1Mi", "interface.virtkit.io/web: in=1Mi"
	for name, tc := range map[string]struct{ before, after, running string }{
		"changes": {
			"{annotations: {" + root + "}}", "{annotations: {disk.virtkit.io/root: bps=2Mi}}", "live",
		},
		"comes, first of all": {"{}", "{annotations: {" + root + ", " + web + "}}", "live"},
		"comes with metadata": {"", "{annotations: {" + web + "}, creationTimestamp: null}", "live"},
		"goes, last of all":   {"{annotations: {" + root + "}}", "{}", "live"},
		"goes with metadata":  {"{annotations: {" + root + "}}", "", "live"},
		"with another":        {"{}", "{annotations: {" + root + ", a: b}}", "restart"},
		"with a label":        {"", "{annotations: {" + root + "}, labels: {a: b}}", "restart"},
		"another":             {"{annotations: {a: b}}", "{annotations: {a: c}}", "restart"},
	} {
		var got []string
		for _, c := range Compare(vmOf(t, tc.before), vmOf(t, tc.after)) {
			effect, _ := EffectOf(c, true)
			got = append(got, string(effect))
			if effect, _ := EffectOf(c, false); effect != Start {
				t.Errorf("%s: %s is %s without a guest", name, c.Path, effect)
			}
		}
		if text := strings.Join(got, " "); text != tc.running {
			t.Errorf("%s: %s, want %s", name, text, tc.running)
		}
	}
}

func vmOf(t *testing.T, metadata string) map[string]any {
	t.Helper()
	if metadata == "" {
		return object(t, "{spec: {template: {spec: {}}}}")
	}
	return object(t, "{spec: {template: {metadata: "+metadata+", spec: {}}}}")
}

// What is known of the guest says when a limit takes effect, and Limit does it.
func TestLimit(t *testing.T) {
	running := func(text string) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
		vmi.Spec.Volumes = []v1.Volume{{Name: "root"}}
		if text != "" {
			vmi.Annotations["disk.virtkit.io/root"] = text
		}
		return vmi
	}
	bare := running("")
	bare.Spec.Volumes = nil
	for name, tc := range map[string]struct {
		instance        *v1.VirtualMachineInstance
		staged          bool
		want, has, note string
	}{
		"comes":               {running(""), false, "live", "bps=2Mi", noteLimit},
		"changes":             {running("bps=1Mi"), false, "live", "bps=2Mi", noteLimit},
		"is there":            {running("bps=2Mi"), false, "live", "bps=2Mi", noteHas},
		"staged":              {running("bps=1Mi"), true, "restart", "bps=1Mi", noteStaged},
		"staged, as it was":   {running("bps=2Mi"), true, "live", "bps=2Mi", noteHas},
		"of no disk of it":    {bare, false, "live", "", noteNoLimit},
		"without an instance": {nil, false, "start", "", ""},
	} {
		template := &v1.VirtualMachineInstanceTemplateSpec{}
		template.ObjectMeta.Annotations = map[string]string{"disk.virtkit.io/root": "bps=2Mi", "x": "y"}
		template.Spec.Volumes = []v1.Volume{{Name: "root"}}
		before, after := vmOf(t, ""), vmOf(t, "{annotations: {disk.virtkit.io/root: bps=2Mi}}")
		v := Guest{Instance: tc.instance, Staged: tc.staged}.Verdicts(Compare(before, after),
			Edit{Before: before, After: after})[0]
		if string(v.Effect) != tc.want || v.Note != tc.note {
			t.Errorf("%s: %s %q", name, v.Effect, v.Note)
		}
		if tc.instance == nil {
			continue
		}
		if v.Effect == Live && v.Note != noteHas && !v.Follows() {
			t.Errorf("%s: it is said to hold where vmRolloutStrategy is Stage, too", name)
		}
		was := maps.Clone(tc.instance.Annotations)
		got := Limit(template, tc.instance, !tc.staged)
		if !maps.Equal(tc.instance.Annotations, was) {
			t.Fatalf("%s: the instance is changed", name)
		}
		if got.Annotations["disk.virtkit.io/root"] != tc.has || got.Annotations["a"] != "b" ||
			got.Annotations["x"] != "" ||
			got.Changed != !maps.Equal(got.Annotations, was) ||
			(got.Refused[limitPath] == noteStaged) != (tc.want == "restart") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What takes limits away does not limit.
func TestLimitGoes(t *testing.T) {
	had, none := vmOf(t, "{annotations: {disk.virtkit.io/root: bps=2Mi}}"), vmOf(t, "")
	for _, after := range []map[string]any{none, vmOf(t, "{annotations: {x: y}}")} {
		for _, c := range Compare(had, after) {
			if _, ok := limitKeys(c); !ok {
				continue
			}
			if effect, note := EffectOf(c, true); effect != Live || note != noteFree {
				t.Errorf("%s: %s %q", c.Path, effect, note)
			}
		}
	}
	if c := Compare(none, had)[0]; c.After == nil {
		t.Errorf("%+v", c)
	}
}
