package page

import (
	"slices"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// A command line that is shown does the same where another cluster is the current one, and shows no secret.
func TestLineReachesTheCluster(t *testing.T) {
	w := &World{Flags: []string{"--token=secret", "--password=secret", "--kubeconfig=/a b", "--context=far"}}
	if got := w.Line("virtctl", "pause", "web"); got != "virtctl pause web '--kubeconfig=/a b' --context=far" {
		t.Error(got)
	}
	if got := Shown([]string{"logs", "web", "--token=secret", "--context=far"}); !slices.Equal(got,
		[]string{"logs", "web", "--context=far"}) {
		t.Error(got)
	}
	if got := (&World{}).Line("virtctl list"); got != "virtctl list" {
		t.Error(got)
	}
}

// A machine without a disk can be made, and the form says that it would have none.
func TestFormWarnsOfNoDisk(t *testing.T) {
	p := NewForm(&World{Theme: theme.New(theme.Options{})})
	p.inputs[fieldName].SetValue("web")
	p.inputs[fieldNamespace].SetValue("prod")
	for _, image := range []string{"", "image:1"} {
		p.inputs[fieldImage].SetValue(image)
		p.changed()
		if p.wrong != nil || p.diskless != (image == "") {
			t.Errorf("%q: wrong %v, diskless %v", image, p.wrong, p.diskless)
		}
	}
}
