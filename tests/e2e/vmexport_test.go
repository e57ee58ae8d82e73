//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
)

// What a guest has written to a disk with a file system and to one that is a device comes out of exports, raw,
// compressed and as qcow2, also when virtctl was killed amid it; while the VM runs they wait, and nothing is left of
// them.
func TestVMExport(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for name, mode := range map[string]corev1.PersistentVolumeMode{
		"disk": corev1.PersistentVolumeFilesystem, "block": corev1.PersistentVolumeBlock,
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.VolumeMode = &mode
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}
		_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	g := c.create(t, newVM(ns, "vm", v1.RunStrategyAlways, withDisks("disk", "block")))
	g.waitLogin(t)
	con := g.shell(t, "")
	for _, name := range []string{"disk", "block"} {
		con.run(t, "for d in /sys/block/vd*; do test \"$(cat $d/serial)\" = "+name+" && echo written-to-"+name+
			" | dd of=/dev/${d##*/} bs=512 seek=40000 count=1 conv=sync,notrunc 2>/dev/null && dd if=/dev/urandom"+
			" of=/dev/${d##*/} bs=1M seek=30 count=24 conv=notrunc 2>/dev/null; done; sync")
	}

	_, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "vmexport", "download", "early", "--vm=vm", "--volume=disk",
		"--output="+filepath.Join(t.TempDir(), "early"), "--readiness-timeout=5s")
	if err == nil || !strings.Contains(stderr, "Virtual Machine "+ns+"/vm is running; stop it") {
		t.Errorf("of a VM that runs: %v %s", err, stderr)
	}
	c.virtctl(t, nil, "-n", ns, "stop", "vm", "--wait", "--timeout=120s")

	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "exp", "--vm=vm", "--ttl=1h")
	for _, name := range []string{"disk", "block"} {
		file := filepath.Join(t.TempDir(), name)
		c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--volume="+name, "--format=raw", "--port-forward",
			"--output="+file)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := raw[40000*512:][:16]; !bytes.HasPrefix(got, []byte("written-to-"+name)) {
			t.Errorf("at its place %s has %q", name, got)
		}
		packed := c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--volume="+name, "--output=-")
		unpacked, err := gzip.NewReader(strings.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := io.ReadAll(unpacked); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s: compressed it has %d bytes, raw %d: %v", name, len(again), len(raw), err)
		}
		c.downloadQCOW2(t, ns, name, raw)
		c.downloadKilled(t, ns, name, raw, false, "exp")
	}
	manifests := c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--manifest", "--include-secret")
	for _, want := range []string{"kind: VirtualMachine\n", "name: export-ca-cm-exp", "name: header-secret-exp"} {
		if !strings.Contains(manifests, want) {
			t.Errorf("the manifests lack %q:\n%s", want, manifests)
		}
	}
	c.virtctl(t, nil, "-n", ns, "vmexport", "delete", "exp")
	eventually(t, 30*time.Second, "nothing is left of the exports", func() string {
		pods, err := c.Kube.CoreV1().Pods(ns).List(t.Context(),
			metav1.ListOptions{LabelSelector: "kubevirt.io=virt-exporter"})
		if err != nil {
			return err.Error()
		}
		secrets, err := c.Kube.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var left []string
		for i := range pods.Items {
			left = append(left, "pod "+pods.Items[i].Name)
		}
		for i := range secrets.Items {
			if strings.Contains(secrets.Items[i].Name, "exp") {
				left = append(left, "Secret "+secrets.Items[i].Name)
			}
		}
		return strings.Join(left, ", ")
	})
}

// downloadQCOW2 fails unless what is downloaded as qcow2 is an image of the disk.
func (c *cluster) downloadQCOW2(t *testing.T, ns, name string, want []byte) {
	t.Helper()
	dir := t.TempDir()
	image, raw := filepath.Join(dir, "image.qcow2"), filepath.Join(dir, "raw")
	c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--volume="+name, "--format=qcow2", "--output="+image)
	for _, args := range [][]string{
		{"check", "-f", "qcow2", image}, {"convert", "-f", "qcow2", "-O", "raw", image, raw},
	} {
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %s: %v\n%s", args[0], err, out)
		}
	}
	if got, err := os.ReadFile(raw); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: as qcow2 it has %d bytes, raw %d: %v", name, len(got), len(want), err)
	}
}

// downloadKilled kills virtctl amid a download of an export, which it may make, and repeats the command: it goes on,
// and has the same. It is killed when a part has come, or early as soon as it has noted what it is about to do.
func (c *cluster) downloadKilled(t *testing.T, ns, name string, want []byte, early bool, arguments ...string) {
	t.Helper()
	const tries = 20
	for range tries {
		file := filepath.Join(t.TempDir(), "disk")
		args := append([]string{
			"-n", ns, "vmexport", "download", "--volume=" + name, "--format=raw", "--output=" + file,
		}, arguments...)
		first := exec.Command(c.Bin("virtctl"),
			append([]string{"--kubeconfig", c.Kubeconfig, "--context", c.Name}, args...)...)
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		note := filepath.Join(filepath.Dir(file), ".disk.part.json")
		ended := make(chan error, 1)
		go func() { ended <- first.Wait() }()
		for there := false; !there; {
			select {
			case <-ended: // it was too fast
				ended <- nil
				there = true
			case <-time.After(time.Millisecond):
				var noted struct{ Point export.Point }
				text, err := os.ReadFile(note)
				there = err == nil && (early || json.Unmarshal(text, &noted) == nil && noted.Point.Valid())
			}
		}
		_ = first.Process.Kill() // it may have ended
		<-ended
		if _, err := os.Stat(file); err == nil {
			continue
		}
		_, stderr, err := c.Virtctl(t.Context(), nil, args...)
		if err != nil || !early && !strings.Contains(stderr, "note: going on with ") {
			t.Errorf("%s, after a kill: %v\n%s", name, err, stderr)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: after a kill it has %d bytes, raw %d: %v", name, len(got), len(want), err)
		}
		return
	}
	t.Errorf("%s: virtctl was never killed amid %d downloads", name, tries)
}
