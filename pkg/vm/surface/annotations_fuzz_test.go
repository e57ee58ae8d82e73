package surface

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// FuzzIgnition validates the annotation that becomes a guest's Ignition configuration. Only a JSON object is admitted,
// and since it may hold passwords the refusal says the same of every other text.
func FuzzIgnition(f *testing.F) {
	for _, config := range []string{
		`{"ignition": {"version": "3.4.0"}}`, "{}", " {} ", "null", " null", "[]", "7", `"{}"`, "{", "{}{}",
		"passwd: secret",
		`{"a":1e999}`, `{"\ud800":"\u0000"}`, "\ufeff{}", "\x00", "\xff{}", strings.Repeat(`{"a":`, 20000),
	} {
		f.Add(config)
	}
	at := field.NewPath("metadata", "annotations")
	refusal := Message(validateAnnotations(map[string]string{v1.IgnitionAnnotation: "x"}, at))
	f.Fuzz(func(t *testing.T, config string) {
		got := Message(validateAnnotations(map[string]string{v1.IgnitionAnnotation: config}, at))
		switch {
		case config == "" && got != "":
			t.Errorf("without one: %q", got)
		case got != "" && got != refusal:
			t.Errorf("%q is refused with %q", config, got)
		case got == "" && config != "" &&
			(!json.Valid([]byte(config)) || strings.TrimLeft(config, " \t\r\n")[0] != '{'):
			t.Errorf("%q is admitted", config)
		}
	})
}
