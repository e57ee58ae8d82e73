//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/tests/instance"
)

// An image of the user's own catalogue is pulled from a server; two VMs of it each have a copy, with the caller's SSH
// key, and what one writes the other does not see. What is deleted is the image alone.
func TestImages(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	disk, err := os.ReadFile(tinyDisk)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(tinyDisk))))
	defer server.Close()
	home := t.TempDir()
	virtctl := func(args ...string) (string, string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), c.Bin("virtctl"),
			append([]string{"--kubeconfig", c.Kubeconfig, "--context", c.Name, "-n", ns}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
		var out, errOut strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		return out.String(), errOut.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, errOut, err := virtctl(args...)
		if err != nil {
			t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
		}
		return out + errOut
	}
	key := filepath.Join(home, ".ssh", "id_ed25519")
	if err := os.Mkdir(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeKey(key); err != nil {
		t.Fatal(err)
	}

	if _, errOut, err := virtctl("create", "vm", "--name", "one", "--image", "tiny"); err == nil ||
		!strings.Contains(errOut, "virtctl image list --available") {
		t.Errorf("of an image that is not there: %v %s", err, errOut)
	}
	sum := sha256.Sum256(disk)
	add := []string{"image", "add", "tiny/1", "--size", "512Mi", "--user", "root", "--url", server.URL + "/tiny.qcow2"}
	must(append(add, "--checksum", strings.Repeat("0", 64))...)
	if _, errOut, err := virtctl("image", "pull", "tiny"); err == nil || !strings.Contains(errOut, "it was removed") {
		t.Errorf("of another checksum: %v %s", err, errOut)
	}
	must(append(add, "--checksum", hex.EncodeToString(sum[:]))...)
	must("image", "pull", "tiny/1", "--wait-secs=120")
	if out := must("image", "pull", "tiny"); !strings.Contains(out, "is there already: claim tiny-1") {
		t.Errorf("again: %s", out)
	}
	if out := must("image", "list", "-o", "jsonpath={.items[0].image} {.items[0].phase}"); out != "tiny/1 Ready" {
		t.Errorf("listed: %s", out)
	}
	// The same disk from a file, and from a container image, which the cluster pulls.
	must("image", "import", tinyDisk, "tiny/0", "--size", "512Mi", "--user", "root", "--wait-secs=120")
	must("image", "add", "tiny/2", "--size", "512Mi", "--user", "root", "--url", "docker://"+instance.TinyDisk())
	must("image", "pull", "tiny/2", "--wait-secs=120")
	must("image", "import", "docker://"+instance.TinyDisk(), "tiny/4", "--size", "512Mi", "--user", "root",
		"--wait-secs=120")
	if _, errOut, err := virtctl("image", "import", "docker://"+instance.TinyDisk(), "tiny/3", "--size", "512Mi",
		"--container-path", "/disk/none.img", "--wait-secs=120"); err == nil ||
		!strings.Contains(errOut, "has no file /disk/none.img") {
		t.Errorf("of a path that is not in the image: %v %s", err, errOut)
	}
	for claim, ref := range map[string]string{
		"tiny-0": "tiny/0", "tiny-1": "tiny/1", "tiny-2": "tiny/2", "tiny-4": "tiny/4",
	} {
		got := must("image", "list", "-o",
			`jsonpath={range .items[*]}{.image} {.metadata.name} {.phase}{"\n"}{end}`)
		if !strings.Contains(got, ref+" "+claim+" Ready\n") {
			t.Errorf("listed: %s, want %s", got, ref)
		}
	}
	claims := c.Kube.CoreV1().PersistentVolumeClaims(ns)
	image, err := claims.Get(t.Context(), "tiny-1", metav1.GetOptions{})
	if err != nil || image.Labels[uploads.LabelImageUser] != "root" {
		t.Errorf("labels %v, %v", image.Labels, err)
	}

	for name, image := range map[string]string{"one": "tiny/1", "two": "tiny/1", "three": "tiny/2"} {
		out := must("create", "vm", "--name", name, "--image", image, "--memory", "128Mi", "--disk-bus", "virtio",
			"--apply")
		if !strings.Contains(out, "account root lets you log in with "+key+".pub") {
			t.Errorf("created: %s", out)
		}
		must("wait", name, "--for=login", "--timeout=4m")
		copied, err := claims.Get(t.Context(), name+"-disk", metav1.GetOptions{})
		if err != nil || copied.Status.Phase != corev1.ClaimBound || copied.Labels[uploads.LabelImage] != "" {
			t.Fatalf("the copy: %v, %v", copied, err)
		}
	}
	if _, errOut, err := virtctl("create", "vm", "--name", "one", "--image", "tiny", "--apply"); err == nil ||
		!strings.Contains(errOut, `virtualmachines.kubevirt.io "one" already exists`) {
		t.Errorf("a second of the name: %v %s", err, errOut)
	}
	const at = " bs=512 seek=800000 count=1 conv=sync,notrunc 2>/dev/null; sync"
	const read = "dd if=/dev/vda bs=512 skip=800000 count=1 2>/dev/null | head -c 9"
	run := func(name, command string) string {
		t.Helper()
		got := ""
		eventually(t, time.Minute, "ssh to "+name, func() string {
			out, errOut, err := virtctl("ssh", "root@"+name, "-i", key,
				"--strict-host-key-checking=accept-new", "-c", command)
			got = out
			if err != nil {
				return err.Error() + errOut
			}
			return ""
		})
		return got
	}
	run("one", "echo kept-data | dd of=/dev/vda"+at)
	if got := run("one", read); got != "kept-data" {
		t.Errorf("one reads %q", got)
	}
	if got := run("two", read); got == "kept-data" {
		t.Error("two sees what one has written")
	}
	must("image", "rm", "tiny/1", "--yes")
	if got := run("one", read); got != "kept-data" {
		t.Errorf("without the image one reads %q", got)
	}
}
