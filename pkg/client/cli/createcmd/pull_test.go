package createcmd

import (
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// pulling is a cluster whose namespace shop has no image, and a catalogue with golden/1, which is a container image:
// once its upload was asked for it is there.
func pulling(t *testing.T) *cluster {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	const claims = "/api/v1/namespaces/shop/persistentvolumeclaims"
	const image = `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop",
"name": "golden-1", "uid": "image", "labels": {"image.virtkit.io/name": "golden", "image.virtkit.io/version": "1"}},
"spec": {}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}`
	c := newCluster(t)
	c.objects = map[string]string{
		claims: `{"items": []}`,
		"/api/v1/namespaces/shop/configmaps/image-catalogue": `{"metadata": {}, "data": {"images.yaml": ` +
			`"{apiVersion: cli.virtkit.io/v1, kind: ImageCatalogue, images: [{name: golden, version: '1', aliases: ` +
			`[gold], size: 1Gi, sources: [{arch: amd64, url: 'docker://example.com/golden:1'}]}]}"}}`,
	}
	c.uploaded = func() {
		objects := maps.Clone(c.objects)
		objects[claims], objects[claims+"/golden-1"] = `{"items": [`+image+`]}`, image
		const upload = "/apis/subresources.kubevirt.io/v1/namespaces/shop/persistentvolumeclaims/golden-1/upload"
		objects[upload] = `{"phase": "Succeeded"}`
		c.objects = objects
	}
	return c
}

// An image of the catalogue that the namespace has not is pulled before the VM is made, once, also by an alias that
// only the cluster's catalogue has.
func TestPullWithVM(t *testing.T) {
	c := pulling(t)
	line := func(text string) []string { return strings.Fields("vm --apply --pull " + text) }
	out, said, err := c.create("", line("--name web --image golden/gold")...)
	if err != nil || out != "virtualmachine.kubevirt.io/web created\n" {
		t.Fatalf("%v, %q, %s", err, out, said)
	}
	for _, want := range []string{
		"note: image golden/1 is not in namespace shop: it is pulled first\n",
		"note: claim shop/golden-1 has image golden/1, for other VMs, too; `virtctl image rm golden/1` deletes it\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("said %s, want %s", said, want)
		}
	}
	asked, at := c.requests(), 0
	for _, want := range []string{
		"POST /api/v1/namespaces/shop/persistentvolumeclaims",
		"PUT /apis/subresources.kubevirt.io/v1/namespaces/shop/persistentvolumeclaims/golden-1/upload",
		"POST /api/v1/namespaces/shop/persistentvolumeclaims", // the copy
		"POST /apis/kubevirt.io/v1/namespaces/shop/virtualmachines",
	} {
		found := strings.Index(asked[at:], want)
		if found < 0 {
			t.Fatalf("asked %s, want %s", asked, want)
		}
		at += found + len(want)
	}
	_, said, err = c.create("", line("--name other --image golden")...)
	if asked := c.requests(); err != nil || strings.Contains(asked, "PUT ") || strings.Contains(said, "pulled") {
		t.Errorf("one that is there: %v, %s, asked %s", err, said, asked)
	}
}

// What is wrong is said before anything is pulled, and a dry run pulls nothing.
func TestPullIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"--apply": "--pull: which image? Name it with --image, such as --image=debian/13",
		"--image golden": "--pull brings an image into the cluster, which a command that prints a manifest leaves " +
			"as it is; add --apply, or call `virtctl image pull` before",
	} {
		newCluster(t).refused("vm --name web --pull "+line, want)
	}
	const gone = `{"metadata": {"name": "gone-disk"}}`
	for line, want := range map[string]string{
		"--name web --image golden --dry-run": "a dry run pulls nothing; call `virtctl image pull golden/1` before",
		"--name web --image tin":              "there is no image tin in the catalogue",
		"--name web --image golden/1 --image-size 1Mi": "--image-size: the image has 1Gi, and its copy cannot have " +
			"less; ask for 1Gi or more",
		"--name web --image golden --memory much":          "memory",
		"--name web --image golden --instancetype u1.none": "--instancetype: ",
		"--name there --image golden":                      `"there" already exists`,
		"--name gone --image golden": "claim shop/gone-disk is there already; choose another --name, or delete it, " +
			"if no VM needs what is on it",
		"--name web --image vault/golden/1":                    "call `virtctl image pull golden/1 -n vault` before",
		"--name web --image golden/1 --volume-pvc src:a,name:": "name",
	} {
		c := pulling(t)
		c.objects["/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/there"] = `{"metadata": {"name": "there"}}`
		c.objects["/api/v1/namespaces/shop/persistentvolumeclaims/gone-disk"] = gone
		c.objects["/api/v1/namespaces/vault/persistentvolumeclaims"] = `{"items": []}`
		_, _, err := c.create("", strings.Fields("vm --apply --pull "+line)...)
		if asked := c.requests(); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(asked, "POST ") || strings.Contains(asked, "PUT ") {
			t.Errorf("%s: %v, want %s, asked %s", line, err, want, asked)
		}
	}
	c := pulling(t)
	if _, _, err := c.create("", strings.Fields("vm --name web --image golden --apply")...); err == nil ||
		!strings.Contains(err.Error(), "image golden not found in namespace shop") {
		t.Errorf("without --pull: %v", err)
	}
	_, _, err := c.create("", strings.Fields("vm --name web --image debian/13 --apply")...)
	const want = "`virtctl image pull debian/13` brings it, as --pull does with --apply"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without --pull: %v, want %s", err, want)
	}
	// A pull that fails leaves no VM.
	c = pulling(t)
	c.refusal, c.refuses = apierrors.NewForbidden(schema.GroupResource{Resource: "claims"}, "golden-1", nil),
		"persistentvolumeclaims"
	_, _, err = c.create("", strings.Fields("vm --name web --image golden --apply --pull")...)
	if asked := c.requests(); cli.ExitCode(err) != cli.ExitNotAllowed ||
		strings.Contains(asked, "POST /apis/kubevirt.io") || !strings.HasPrefix(err.Error(), "pull image golden/1: ") {
		t.Errorf("a pull that fails: %v, asked %s", err, asked)
	}
}
