package savedmemory

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestVolume(t *testing.T) {
	name := Volume("11111111-2222-3333-4444-555555555555")
	if !IsVolume(name) || IsVolume("memory") || len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("%s", name)
	}
}

func TestResumeOf(t *testing.T) {
	want := &Resume{Claim: "c", Restore: "r", MACs: map[string]string{"default": "02:00:00:00:00:01"}}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ResumeOf(map[string]string{ResumeAnnotation: text})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ResumeOf(nil); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{", "{}", `{"claim":"c"}`, `{"claim":"c","restore":"../r"}`} {
		if got, err := ResumeOf(map[string]string{ResumeAnnotation: text}); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
