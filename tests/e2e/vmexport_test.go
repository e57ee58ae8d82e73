//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// What a guest has written to a disk with a file system and to one that is a device comes out of exports, raw and
// compressed; while the VM runs they wait, and nothing is left of them.
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
			" | dd of=/dev/${d##*/} bs=512 seek=40000 count=1 conv=sync,notrunc 2>/dev/null; done; sync")
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
