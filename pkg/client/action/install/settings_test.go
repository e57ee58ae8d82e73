package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// What an installation was given the next one keeps, unless it is given something else.
func TestSettingsAreKept(t *testing.T) {
	first := Settings{
		Registry: "mirror.example/virtkit", PullPolicy: "Always", KubeletDir: "/data/kubelet",
		PodAnnotations: map[string]string{"a": "1", "b": "2"},
	}
	install := func(s Settings, recorded string) (*appsv1.Deployment, string) {
		t.Helper()
		s, err := s.keep(recorded)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Objects(s)
		if err != nil {
			t.Fatal(err)
		}
		d := decode[appsv1.Deployment](t, all, "Deployment", names.VirtController)
		return d, d.Annotations[SettingsAnnotation]
	}
	d, recorded := install(first, "")
	again, same := install(Settings{}, recorded)
	if diff := cmp.Diff(recorded, same); diff != "" {
		t.Error(diff)
	}
	// Follow fills in the pull policy.
	again.Spec.Template.Spec.Containers[0].ImagePullPolicy = d.Spec.Template.Spec.Containers[0].ImagePullPolicy
	if diff := cmp.Diff(d.Spec.Template, again.Spec.Template); diff != "" {
		t.Error(diff)
	}
	changed, _ := install(Settings{
		Registry: "other.example", PodAnnotations: map[string]string{"a": "", "b": "3"},
	}, recorded)
	image := changed.Spec.Template.Spec.Containers[0].Image
	if !strings.HasPrefix(image, "other.example/virt-server:") {
		t.Error(image)
	}
	got := changed.Spec.Template.Annotations
	if _, is := got["a"]; is || got["b"] != "3" {
		t.Errorf("%v", got)
	}
	if _, err := (Settings{}).keep("{"); err == nil || !strings.Contains(err.Error(), SettingsAnnotation) {
		t.Errorf("%v", err)
	}
	if d, recorded := install(Settings{}, ""); recorded != "" {
		t.Errorf("%v", d.Annotations)
	}
}
