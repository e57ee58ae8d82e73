package termination

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

func TestEncode(t *testing.T) {
	for want, m := range map[string]Message{
		``: {},
		`{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"shutdown"}`: {
			Lifecycle: launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, Reason: "shutdown",
		},
		`{"lifecycle":"LIFECYCLE_MIGRATED","reason":""}`: {Lifecycle: launcherpb.Lifecycle_LIFECYCLE_MIGRATED},
		`{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"","stateSaved":true}`: {
			Lifecycle: launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, StateSaved: true,
		},
	} {
		text, err := m.Encode()
		if err != nil || string(text) != want {
			t.Errorf("%+v: %s, %v; want %s", m, text, err, want)
		}
		if got := Parse(want); got != m {
			t.Errorf("%s: %+v, want %+v", want, got, m)
		}
	}
}

// What is no message says nothing, rather than something that was not meant.
func TestParseForeign(t *testing.T) {
	for _, text := range []string{
		"", "null", "[]", `"LIFECYCLE_SHUTOFF"`, "{}", `{"reason":"shutdown"}`, `{"lifecycle":"SHUTOFF"}`,
		`{"lifecycle":"lifecycle_shutoff"}`,
		`{"lifecycle":3}`, `{"lifecycle":"LIFECYCLE_SHUTOFF"} and more`, "level=error msg=\"cannot start\"\n",
	} {
		if got := Parse(text); got != (Message{}) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestOf(t *testing.T) {
	const text = `{"lifecycle":"LIFECYCLE_CRASHED","reason":"panicked"}`
	status := func(container string, state corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: state}}},
		}
	}
	over := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text}}
	want := Message{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_CRASHED, Reason: "panicked"}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want Message
	}{
		"the launcher has ended": {status(names.ContainerCompute, over), want},
		"it runs": {
			status(names.ContainerCompute, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), Message{},
		},
		"another container ended": {status("sidecar", over), Message{}},
		"nothing has begun":       {&corev1.Pod{}, Message{}},
	} {
		if got := Of(c.pod); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A guest that has taken over its launcher writes what it likes.
func FuzzParse(f *testing.F) {
	f.Add(`{"lifecycle":"LIFECYCLE_CRASHED","reason":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		m := Parse(text)
		if m.Lifecycle == 0 && m.Reason == "" {
			return
		}
		again, err := m.Encode()
		if err != nil || !json.Valid(again) {
			t.Fatalf("%+v is written as %q, %v", m, again, err)
		}
		if Parse(string(again)) != m {
			t.Errorf("%q is read as %+v, and that as %+v", text, m, Parse(string(again)))
		}
	})
}
