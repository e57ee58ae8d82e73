package install

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func objects(t *testing.T, s Settings) []*unstructured.Unstructured {
	t.Helper()
	all, err := Objects(s)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func byName(objects []*unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, o := range objects {
		all[o.GetNamespace()+" "+Name(o)] = o.Object
	}
	return all
}

// `kubectl apply -k` of the two directories and `virtctl install` install the same.
func TestObjectsAreTheKustomizations(t *testing.T) {
	var built []*unstructured.Unstructured
	for _, dir := range []string{"crds", "base"} {
		built = append(built, kustomize(t, filesys.MakeFsOnDisk(), "../../../../manifests/"+dir)...)
	}
	if diff := cmp.Diff(byName(built), byName(objects(t, Settings{}))); diff != "" {
		t.Errorf("(-kustomize +install):\n%s", diff)
	}
}

func kustomize(t *testing.T, fs filesys.FileSystem, dir string) []*unstructured.Unstructured {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func TestOrder(t *testing.T) {
	var kinds []string
	for _, o := range objects(t, Settings{}) {
		kinds = append(kinds, o.GetKind())
		if _, known := resources[o.GroupVersionKind().GroupKind()]; !known {
			t.Errorf("the resource of %s is not known", o.GroupVersionKind())
		}
	}
	first := func(kind string) int { return slices.Index(kinds, kind) }
	last := func(kind string) int {
		k := len(kinds) - 1
		for kinds[k] != kind {
			k--
		}
		return k
	}
	for _, pair := range [][2]string{
		{"CustomResourceDefinition", "Namespace"},
		{"Namespace", "KubeVirt"},
		{"KubeVirt", "ValidatingWebhookConfiguration"}, // admission of the first one would find nobody
		{"ClusterRoleBinding", "Deployment"},
		{"RoleBinding", "Deployment"},
		{"PriorityClass", "Deployment"},
		{"ServiceAccount", "Deployment"},
		{"Deployment", "APIService"},
		{"APIService", "MutatingWebhookConfiguration"},
	} {
		if pair[0] == "ServiceAccount" {
			if first(pair[0]) > first(pair[1]) {
				t.Errorf("the first %s comes after the first %s", pair[0], pair[1])
			}
			continue
		}
		if last(pair[0]) > first(pair[1]) {
			t.Errorf("a %s comes after a %s", pair[0], pair[1])
		}
	}

	removal := removalOrder(objects(t, Settings{}))
	if n := admissions(removal); n != 2 {
		t.Errorf("%d webhook configurations lead the removal, want 2", n)
	}
	if kind := removal[len(removal)-1].GetKind(); kind != "CustomResourceDefinition" {
		t.Errorf("the last to be removed is a %s", kind)
	}
}

func TestSettings(t *testing.T) {
	changed := objects(t, Settings{
		Registry: "registry.example.com:5000/vms/", Tag: "v1.2.3", PullPolicy: "Always",
		KubeletDir:     "/var/lib/k0s/kubelet",
		PodAnnotations: map[string]string{"example.com/build": "7"},
	})
	var images, policies, paths []string
	annotated := 0
	collect(changed, func(key, value string) {
		switch {
		case strings.Contains(value, "virt-server:"), strings.Contains(value, "virt-launcher:"):
			images = append(images, value)
		case key == "imagePullPolicy", key == "pullPolicy":
			policies = append(policies, value)
		case strings.HasPrefix(value, "/var/lib/"):
			paths = append(paths, key+"="+value)
		case key == "example.com/build":
			annotated++
		}
	})
	check := func(what string, got []string, want ...string) {
		t.Helper()
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("images", images, "registry.example.com:5000/vms/virt-launcher:v1.2.3",
		"registry.example.com:5000/vms/virt-server:v1.2.3")
	check("pull policies", policies, "Always")
	check("paths", paths,
		"mountPath=/var/lib/kubelet/device-plugins", "mountPath=/var/lib/virtkit",
		"path=/var/lib/k0s/kubelet/device-plugins", "path=/var/lib/k0s/kubelet/pods", "path=/var/lib/virtkit")
	if annotated != 4 {
		t.Errorf("%d pod templates have the annotation, want 4", annotated)
	}
}

// collect calls visit with every string of the objects and the key it is under.
func collect(objects []*unstructured.Unstructured, visit func(key, value string)) {
	var walk func(key string, value any)
	walk = func(key string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for k, child := range v {
				walk(k, child)
			}
		case []any:
			for _, child := range v {
				walk(key, child)
			}
		case string:
			visit(key, v)
		}
	}
	for _, o := range objects {
		walk("", o.Object)
	}
}

// docs and README show this overlay; image overrides need the image locations that kustomize does not know.
func TestKustomizeOverlayChangesEveryImage(t *testing.T) {
	fs := filesys.MakeFsOnDisk()
	dir := t.TempDir()
	base := strings.Repeat("../", strings.Count(dir, "/")) // to the root, kustomize wants relative paths
	overlay := `resources: [` + base + strings.TrimPrefix(abs(t, "../../../../manifests/base"), "/") + `]
configurations: [` + base + strings.TrimPrefix(abs(t, "../../../../manifests/images.yaml"), "/") + `]
images:
- {name: ghcr.io/virtkit/virt-server, newName: registry.example.com/virt-server, newTag: v9}
- {name: ghcr.io/virtkit/virt-launcher, newName: registry.example.com/virt-launcher, newTag: v9}
- {name: ghcr.io/virtkit/libguestfs-tools, newName: registry.example.com/libguestfs-tools, newTag: v9}
`
	if err := fs.WriteFile(dir+"/kustomization.yaml", []byte(overlay)); err != nil {
		t.Fatal(err)
	}
	want := byName(objects(t, Settings{Registry: "registry.example.com", Tag: "v9"}))
	for name, got := range byName(kustomize(t, fs, dir)) {
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s (-install +kustomize):\n%s", name, diff)
		}
	}
}

func TestTagOf(t *testing.T) {
	for version, want := range map[string]string{
		"v0.0.0-dev":  "dev",
		"":            "dev",
		"v1.2.3":      "v1.2.3",
		"v1.2.3-rc.1": "v1.2.3-rc.1",
	} {
		if got := TagOf(version); got != want {
			t.Errorf("TagOf(%q) = %q, want %q", version, got, want)
		}
	}
}

func abs(t *testing.T, path string) string {
	t.Helper()
	a, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestInstancetypesAreKnown(t *testing.T) {
	objects, err := Instancetypes()
	if err != nil || len(objects) == 0 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	for _, o := range objects {
		if _, known := resources[o.GroupVersionKind().GroupKind()]; !known {
			t.Errorf("the resource of %s is not known", Name(o))
		}
	}
}
