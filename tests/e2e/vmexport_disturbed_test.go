//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// A download of a snapshot's export goes on when the export's pod is evicted, when virt-api is killed, and when virtctl
// is killed and the command is repeated. One of a stopped VM's export goes on after an eviction where the disk is a
// file, whose times say that it is the same; a device may have been written to by then, which is said. An upload
// goes on, too, when virt-api is killed. No other test runs beside that.
func TestVMExportDisturbed(t *testing.T) {
	needSnapshots(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	const size = 96 << 20 // more than the connections' buffers take
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]string{"disk": "filesystem", "block": "block"} {
		c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", name, "--size=160Mi", "--image-path="+image,
			"--volume-mode="+mode, "--wait-secs=120")
	}
	vm := newVM(ns, "vm", v1.RunStrategyHalted, withDisks("disk", "block"))
	if err := c.Client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "snapshot", "create", "vm", "taken", "--wait")
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "snap", "--snapshot=taken")
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "stopped", "--vm=vm")

	whole := map[string][]byte{}
	for _, volume := range []string{"disk", "block"} {
		got, stderr, err := c.downloadAmid(t, ns, "snap", volume, func() { c.evictExport(t, ns, "snap") })
		if err != nil || !bytes.HasPrefix(got, data) || len(bytes.Trim(got[size:], "\x00")) > 0 {
			t.Errorf("%s of a snapshot, its pod evicted: %d bytes: %v\n%s", volume, len(got), err, stderr)
		}
		c.waitServed(t, ns, "snap", volume)

		whole[volume] = got
	}
	got, stderr, err := c.downloadAmid(t, ns, "stopped", "disk", func() { c.evictExport(t, ns, "stopped") })
	if err != nil || !bytes.Equal(got, whole["disk"]) {
		t.Errorf("the file of a stopped VM, its pod evicted: %d bytes: %v\n%s", len(got), err, stderr)
	}
	_, stderr, err = c.downloadAmid(t, ns, "stopped", "block", func() { c.evictExport(t, ns, "stopped") })
	var exit *exec.ExitError
	if !errors.As(err, &exit) ||
		!strings.Contains(stderr, "the disk has changed since the download began; repeat the command") {
		t.Errorf("the device of a stopped VM, its pod evicted: %v\n%s", err, stderr)
	}
	// An OVA is measured anew, so that the second pod knows whether it is the same, of the device, too.
	ova, stderr, err := c.streamAmid(t, ns, "stopped", func() { c.evictExport(t, ns, "stopped") }, "--format=ova")
	if err != nil {
		t.Errorf("an OVA, its pod evicted: %v\n%s", err, stderr)
	} else if members := verifyOVA(t, ova); members != 4 {
		t.Errorf("an OVA, its pod evicted, has %d members", members)
	}

	killed, held := map[types.UID]bool{}, c.holdUpload(t, ns, "uploaded", data[:8<<20])
	got, stderr, err = c.downloadAmid(t, ns, "snap", "disk", func() {
		pods, err := c.Kube.CoreV1().Pods(names.Namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + names.VirtAPI})
		if err != nil || len(pods.Items) == 0 {
			t.Fatalf("virt-api's pods: %d, %v", len(pods.Items), err)
		}
		now := int64(0)
		for _, pod := range pods.Items {
			killed[pod.UID] = true
			if err := c.Kube.CoreV1().Pods(names.Namespace).Delete(t.Context(), pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Fatal(err)
			}
		}
		held.resume()
	})
	if err != nil || !bytes.Equal(got, whole["disk"]) {
		t.Errorf("virt-api killed: %d bytes: %v\n%s", len(got), err, stderr)
	}
	c.waitComponents(t, ns, killed)
	if state, err := held.ends(); err != nil || !has(&state, data[:8<<20]) || held.api.opened < 2 {
		t.Errorf("virt-api killed amid an upload: %+v, %d streams: %v", state, held.api.opened, err)
	}

	for _, early := range []bool{false, true} {
		c.downloadKilled(t, ns, "disk", whole["disk"], early, "own", "--snapshot=taken", "--readiness-timeout=5m")
		left := &metav1.PartialObjectMetadata{}
		left.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(exports.Kind))
		key := client.ObjectKey{Namespace: ns, Name: "own"}
		if err := c.Client.Get(t.Context(), key, left); !apierrors.IsNotFound(err) {
			t.Errorf("killed early %v: the export that the first run had made is left: %v", early, err)
		}
	}
}

// downloadAmid downloads a volume to a pipe, and does something when a part of it has come: the rest does not come
// before, for nobody reads it.
func (c *cluster) downloadAmid(
	t *testing.T, ns, export, volume string, disturb func(),
) (disk []byte, stderr string, err error) {
	t.Helper()
	packed, stderr, err := c.streamAmid(t, ns, export, disturb, "--volume="+volume)
	if err != nil {
		return nil, stderr, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	disk, err = io.ReadAll(unpacked)
	return disk, stderr, err
}

// streamAmid is downloadAmid of whatever the arguments say, as it comes.
func (c *cluster) streamAmid(
	t *testing.T, ns, export string, disturb func(), args ...string,
) (stream []byte, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(c.Bin("virtctl"), append([]string{
		"--kubeconfig", c.Kubeconfig, "--context", c.Name, "-n", ns, "vmexport", "download", export, "--output=-",
		"--readiness-timeout=5m",
	}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begin := make([]byte, 1<<20)
	_, err = io.ReadFull(out, begin)
	if err == nil {
		disturb()
	}
	rest, more := io.ReadAll(out)
	err = errors.Join(err, more, cmd.Wait())
	return slices.Concat(begin, rest), said.String(), err
}

// verifyOVA compares an OVA with its manifest, and returns how many members it has.
func verifyOVA(t *testing.T, ova []byte) (members int) {
	t.Helper()
	in, manifest, sums := tar.NewReader(bytes.NewReader(ova)), "", ""
	for ; ; members++ {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(header.Name, ".mf") {
			manifest = string(data)
		} else {
			sums += fmt.Sprintf("SHA256(%s)= %x\n", header.Name, sha256.Sum256(data))
		}
	}
	if sums != manifest {
		t.Errorf("the OVA has\n%s, its manifest says\n%s", sums, manifest)
	}
	return members
}

// evictExport evicts the pod of an export.
func (c *cluster) evictExport(t *testing.T, ns, export string) {
	t.Helper()
	c.evictPod(t, ns, exports.Name(export))
}

// evictPod evicts a pod by the API, and waits until it is gone.
func (c *cluster) evictPod(t *testing.T, ns, name string) {
	t.Helper()
	before, err := c.Kube.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kube.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the evicted pod is gone", func() string {
		pod, err := c.Kube.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err.Error()
		case pod.UID == before.UID:
			return "it is there, " + string(pod.Status.Phase)
		}
		return ""
	})
}

// waitServed waits until the pod that an export has now says that it has served a volume: the download went on there.
func (c *cluster) waitServed(t *testing.T, ns, export, volume string) {
	t.Helper()
	eventually(t, 30*time.Second, "the second pod has served the rest", func() string {
		log, err := c.Kube.CoreV1().Pods(ns).GetLogs(exports.Name(export), &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"served"`) && strings.Contains(line, exports.VolumePath(volume)) {
				return ""
			}
		}
		return instead(string(log))
	})
}
