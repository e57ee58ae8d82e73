package reserved

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	path = field.NewPath("metadata", "annotations")
	at   = field.NewPath("spec", "patches")
)

// Each annotation is refused in each place, by its name and in one sentence, unless it is as it was.
func TestValidate(t *testing.T) {
	for _, key := range Keys() {
		has, other := map[string]string{key: "a", "mine": "1"}, map[string]string{key: "b"}
		for _, in := range []Place{VM, Template, VMI} {
			for _, c := range []struct {
				name        string
				now, before map[string]string
				refused     bool
			}{
				{"made with it", has, nil, true},
				{"added", has, map[string]string{}, true},
				{"added empty", map[string]string{key: ""}, nil, true},
				{"changed", other, has, true},
				{"as it was", has, has, false},
				{"as it was, another changed", has, map[string]string{key: "a", "mine": "2"}, false},
				{"removed", nil, has, in == VMI || in == VM && key == DisksBrought},
			} {
				errs := Validate(in, c.now, c.before, path)
				switch {
				case !c.refused && len(errs) > 0:
					t.Errorf("%s, place %d, %s: refused: %v", key, in, c.name, errs)
				case c.refused && (len(errs) != 1 || errs[0].Field != path.Key(key).String()):
					t.Errorf("%s, place %d, %s: not refused by its name: %v", key, in, c.name, errs)
				case c.refused && strings.Contains(errs[0].Detail, ". "):
					t.Errorf("%s: more than one sentence: %s", key, errs[0].Detail)
				}
			}
		}
	}
}

func TestValidatePatches(t *testing.T) {
	for name, c := range map[string]struct{ patch, refused string }{
		"by path": {
			`{"op":"add","path":"/metadata/annotations/virtkit.io~1resume-memory","value":"{}"}`, ResumeMemory,
		},
		"in the template": {
			`{"op":"add","path":"/spec/template/metadata/annotations/virtkit.io~1moved-volumes","value":"{}"}`,
			MovedVolumes,
		},
		"replaced": {
			`{"op":"replace","path":"/metadata/annotations/virtkit.io~1disks-brought","value":"{}"}`, DisksBrought,
		},
		"from another annotation": {
			`{"op":"move","from":"/metadata/annotations/a","path":"/metadata/annotations/virtkit.io~1disks-brought"}`,
			DisksBrought,
		},
		"copied": {
			`{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/virtkit.io~1disks-brought"}`,
			DisksBrought,
		},
		"escaped": {
			`{"op":"add","path":"/metadata/annotations/virtkit.io~1disks\u002dbrought","value":"{}"}`, DisksBrought,
		},
		"all annotations": {
			`{"op":"add","path":"/metadata/annotations","value":{"a":"b","virtkit.io/resume-memory":"{}"}}`,
			ResumeMemory,
		},
		"all metadata of the template": {
			`{"op":"replace","path":"/spec/template/metadata","value":{"annotations":{"virtkit.io/template-hash":""}}}`,
			TemplateHash,
		},
		"in a list": {
			`{"op":"add","path":"/spec/x","value":[1,{"virtkit.io/declared-volumes":"a"}]}`, DeclaredVolumes,
		},
		"the second path counts": {
			`{"op":"add","path":"/spec/x","path":"/metadata/annotations/virtkit.io~1resume-memory","value":""}`,
			ResumeMemory,
		},
		"removed": {`{"op":"remove","path":"/metadata/annotations/virtkit.io~1resume-memory"}`, ""},
		"tested":  {`{"op":"test","path":"/metadata/annotations/virtkit.io~1resume-memory","value":"a"}`, ""},
		"as a value": {
			`{"op":"add","path":"/metadata/annotations/a","value":"virtkit.io/resume-memory"}`, "",
		},
		"another of ours": {
			`{"op":"add","path":"/metadata/annotations/virtkit.io~1copied-claims","value":"Delete"}`, "",
		},
		"no object":      {`"virtkit.io/resume-memory"`, ""},
		"no JSON":        {`{`, ""},
		"path no string": {`{"op":"add","path":{"virtkit.io/resume-memory":1}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ValidatePatches([]string{`{"op":"add","path":"/spec/a","value":1}`, c.patch}, at)
			if c.refused == "" {
				if len(errs) > 0 {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != "spec.patches[1]" || !strings.Contains(errs[0].Detail, c.refused) {
				t.Errorf("got %v", errs)
			}
		})
	}
}

func TestWithout(t *testing.T) {
	has := map[string]string{"mine": "1", "virtkit.io/copied-claims": "Keep"}
	want := maps.Clone(has)
	for _, key := range Keys() {
		has[key] = "x"
	}
	if got := Without(has); !maps.Equal(got, want) || len(has) != len(want)+len(Keys()) {
		t.Errorf("without them: %v, of %v", got, has)
	}
	if Without(nil) != nil {
		t.Error("annotations have come from nowhere")
	}
	if Drop(has); !maps.Equal(has, want) {
		t.Errorf("dropped: %v", has)
	}
	Drop(nil)
	if Changed(has, want) != "" || Changed(nil, map[string]string{"mine": "1"}) != "" {
		t.Error("nothing of them has changed")
	}
	for _, key := range Keys() {
		for _, pair := range [][2]map[string]string{{{key: ""}, nil}, {nil, {key: ""}}, {{key: "a"}, {key: "b"}}} {
			if got := Changed(pair[0], pair[1]); got != key {
				t.Errorf("%s has changed, got %q", key, got)
			}
		}
	}
	if !slices.IsSorted(Keys()) {
		t.Error(Keys())
	}
}
