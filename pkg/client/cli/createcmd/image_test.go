package createcmd

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// shared is a cluster whose namespace golden has image debian/13, and shop none. It has the image's preference, and not
// its instance type.
func shared(t *testing.T) *cluster {
	t.Helper()
	const image = `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "golden",
"name": "debian-13", "uid": "image", "labels": {"image.virtkit.io/name": "debian", "image.virtkit.io/version": "13",
"image.virtkit.io/user": "deb", "instancetype.kubevirt.io/default-instancetype": "u1.small",
"instancetype.kubevirt.io/default-preference": "debian"}}, "spec": {"storageClassName": "fast"},
"status": {"phase": "Bound", "capacity": {"storage": "5Gi"}}}`
	c := newCluster(t)
	c.objects = map[string]string{
		"/api/v1/namespaces/golden/persistentvolumeclaims":           `{"items": [` + image + `]}`,
		"/api/v1/namespaces/golden/persistentvolumeclaims/debian-13": image,
		"/api/v1/namespaces/shop/persistentvolumeclaims":             `{"items": []}`,
		"/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterpreferences/debian": `{"metadata": ` +
			`{"name": "debian"}}`,
	}
	return c
}

// The disk of an image of another namespace is made by a clone, with what the VM could not infer of a claim that is not
// there yet.
func TestImageOfAnotherNamespace(t *testing.T) {
	c := shared(t)
	t.Setenv("HOME", t.TempDir())
	line := func(text string) []string { return strings.Fields("vm --name web " + text) }
	out, errOut, err := c.create("", line("--image golden/debian/13 --image-size 6Gi")...)
	if err != nil || !strings.Contains(errOut, "nobody can log in") {
		t.Errorf("%v, %s", err, errOut)
	}
	golden(t, "image-across.yaml", out)

	c.requests()
	if _, errOut, err = c.create("", line("--image golden/debian --apply")...); err == nil {
		t.Errorf("golden/debian is an image of the namespace: %s", errOut)
	}
	c.requests()
	if _, _, err = c.create("", line("--image golden/debian/13 --apply")...); err != nil {
		t.Fatal(err)
	}
	asked := c.requests()
	made, vm := strings.Index(asked, "POST /apis/clone.kubevirt.io/v1beta1/namespaces/shop/virtualmachineclones"),
		strings.Index(asked, "POST /apis/kubevirt.io/v1/namespaces/shop/virtualmachines")
	if made < 0 || vm < made || strings.Contains(asked, "POST /api/v1/") {
		t.Errorf("asked %s", asked)
	}
	if c.sent("spec", "preference", "name") != "debian" || c.sent("spec", "instancetype") != nil {
		t.Errorf("sent %v", c.sent("spec"))
	}

	// The VM is refused: the clone is deleted again, with the claim that it may have made.
	c.refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachines"}, "web", nil)
	c.refuses = "virtualmachines"
	c.objects["/api/v1/namespaces/shop/persistentvolumeclaims/web-disk"] = `{"metadata": {"name": "web-disk",
"uid": "copy", "labels": {"virtkit.io/clone-uid": "other"}}}`
	if _, _, err = c.create("", line("--image golden/debian/13 --apply")...); err == nil {
		t.Error("the refusal is not said")
	}
	if asked := c.requests(); !strings.Contains(asked,
		"DELETE /apis/clone.kubevirt.io/v1beta1/namespaces/shop/virtualmachineclones/web-disk") ||
		strings.Contains(asked, "DELETE /api/v1/") {
		t.Errorf("asked %s", asked)
	}

	for text, want := range map[string]string{
		"--image golden/debian/14":                      "image debian/14 not found in namespace golden",
		"--image Golden/debian/13":                      `"Golden" is no namespace`,
		"--image golden/debian/13/1":                    "is no image",
		"--image golden/debian/13 --image-size 1Gi":     "the image has 5Gi",
		"--image golden/debian/13 --infer-instancetype": "--infer-instancetype",
		"--image golden/debian/13 --infer-instancetype-from disk": "--infer-instancetype-from: label " +
			"instancetype.kubevirt.io/default-instancetype of claim golden/debian-13: ",
	} {
		if _, _, err := c.create("", line(text)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A preference of the image's namespace is of no use to a VM of another: it gets none, and asking for it is an error.
func TestImageOfAnotherNamespacesPreference(t *testing.T) {
	c := shared(t)
	t.Setenv("HOME", t.TempDir())
	const preference = `"instancetype.kubevirt.io/default-preference": "debian"`
	for path, text := range c.objects {
		c.objects[path] = strings.Replace(text, preference, preference+
			`, "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference"`, 1)
	}
	line := func(text string) []string { return strings.Fields("vm --name web --image golden/debian/13 " + text) }
	if _, errOut, err := c.create("", line("--apply")...); err != nil || c.sent("spec", "preference") != nil {
		t.Errorf("%v, %s: sent %v", err, errOut, c.sent("spec"))
	}
	const want = "--infer-preference: VirtualMachinePreference debian is of namespace golden, and can be used there " +
		"alone"
	if _, _, err := c.create("", line("--infer-preference")...); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// An image that is a DataSource is copied by CDI, to a DataVolume that the VM has as its first disk.
func TestImageOfDataSource(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	c := newCluster(t)
	source := func(name, ready string) string {
		return `{"metadata": {"namespace": "golden", "name": "` + name + `"}, "spec": {"source": {"pvc": {"namespace": ` +
			`"golden", "name": "fedora-1"}}}, "status": {"conditions": [{"type": "Ready", "status": "` + ready +
			`", "message": "import is under way"}]}}`
	}
	c.objects = map[string]string{
		"/api/v1/namespaces/golden/persistentvolumeclaims": `{"items": [{"metadata": {"namespace": "golden", "name": ` +
			`"fedora-1"}, "status": {"capacity": {"storage": "5Gi"}}}]}`,
		"/apis/cdi.kubevirt.io/v1beta1/namespaces/golden/datasources": `{"items": [` + source("fedora", "True") + `, ` +
			source("rhel9", "False") + `]}`,
	}
	line := func(text string) []string { return strings.Fields("vm --name web.shop " + text) }
	out, errOut, err := c.create("",
		line("--image golden/fedora/latest --image-size 6Gi --infer-preference-from disk")...)
	if err != nil || !strings.Contains(errOut, "nobody can log in") {
		t.Errorf("%v, %s", err, errOut)
	}
	golden(t, "image-datasource.yaml", out)
	c.requests()
	if _, _, err = c.create("", line("--image golden/fedora/latest --apply")...); err != nil {
		t.Fatal(err)
	}
	if asked := c.requests(); strings.Count(asked, "POST ") != 1 {
		t.Errorf("asked %s", asked)
	}
	for text, want := range map[string]string{
		"--image golden/rhel9/latest": "--image: DataSource golden/rhel9 has no disk to copy: import is under way",
		"--image golden/fedora/latest --image-size 1Gi": "--image-size: the image has 5Gi, and its copy cannot have " +
			"less; ask for 5Gi or more",
		"--image golden/fedora/latest --image-size big": `--image-size: "big" is no size; write one such as 10Gi`,
	} {
		if _, _, err := c.create("", line(text)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What an image needs to be there is said by a command that can work.
func TestWhence(t *testing.T) {
	for image, want := range map[string]string{
		"debian/13": "image pull debian/13", "debian": "image pull debian", "tin": "image list --available",
		"debian/0": "image list --available",
	} {
		o := &VMOptions{Factory: cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })}
		got := o.whence("shop", image, false)
		if !strings.Contains(got, "`virtctl "+want) || !strings.Contains(got, "shop") {
			t.Errorf("%s: %s", image, got)
		}
	}
}
