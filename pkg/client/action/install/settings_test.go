package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

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

// Follow reads what the installation before was given; the KubeVirt resource's pull policy comes before that, and this
// installation's before both.
func TestFollowKeepsSettings(t *testing.T) {
	d := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	d.SetNamespace(names.Namespace)
	d.SetName(names.VirtController)
	d.SetAnnotations(map[string]string{
		SettingsAnnotation: `{"registry":"mirror.example/virtkit","pullPolicy":"Always"}`,
	})
	kv := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "spec": map[string]any{"imagePullPolicy": "Never"},
	}}
	kv.SetNamespace(names.Namespace)
	kv.SetName(names.KubeVirt)
	for name, c := range map[string]struct {
		there            []runtime.Object
		given            Settings
		registry, policy string
	}{
		"nothing there": {nil, Settings{}, "", ""},
		"kept":          {[]runtime.Object{d}, Settings{}, "mirror.example/virtkit", "Always"},
		"given":         {[]runtime.Object{d}, Settings{Registry: "other", PullPolicy: "Never"}, "other", "Never"},
		"resource":      {[]runtime.Object{d, kv}, Settings{}, "mirror.example/virtkit", "Never"},
		"given, beside the resource": {
			[]runtime.Object{d, kv}, Settings{PullPolicy: "IfNotPresent"}, "mirror.example/virtkit", "IfNotPresent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := &Installer{Client: fake.NewSimpleDynamicClient(runtime.NewScheme(), c.there...)}
			got, err := i.Follow(t.Context(), c.given)
			if err != nil || got.Registry != c.registry || got.PullPolicy != c.policy {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
