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
	"maps"
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

// Downloads of a snapshot's export go on when the export's pod is evicted, and when virtctl is killed and the command
// is repeated. One of a stopped VM's export goes on after an eviction where the disk is a file, whose times say that it
// is the same; a device may have been written to by then, which is said. An OVA is measured anew, so that the second
// pod knows whether it is the same, of the device, too. One eviction cuts all downloads of an export.
func TestVMExportDisturbed(t *testing.T) {
	skipInShort(t)
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	data := c.exported(t, ns, map[string]string{"disk": "filesystem", "block": "block"})
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "stopped", "--vm=vm")

	ova := c.beginDownload(t, ns, "stopped", "--format=ova") // its server reads the disks first
	taken, stopped := map[string]*download{}, map[string]*download{}
	for _, volume := range []string{"disk", "block"} {
		taken[volume] = c.beginDownload(t, ns, "snap", "--volume="+volume)
		stopped[volume] = c.beginDownload(t, ns, "stopped", "--volume="+volume)
	}
	for _, export := range []string{"snap", "stopped"} {
		c.evictPod(t, ns, exports.Name(export))
	}
	for _, d := range []*download{ova, taken["disk"], taken["block"], stopped["disk"], stopped["block"]} {
		go d.goOn()
	}

	for volume, d := range taken {
		d.hasImage(t, volume+" of a snapshot, its pod evicted", data)
		c.waitServed(t, ns, "snap", volume)
	}
	whole := taken["disk"].disk(t)
	if got := stopped["disk"].disk(t); !bytes.Equal(got, whole) {
		t.Errorf("the file of a stopped VM, its pod evicted: %d bytes: %v", len(got), stopped["disk"])
	}
	var exit *exec.ExitError
	if d := stopped["block"].ended(); !errors.As(d.err, &exit) ||
		!strings.Contains(d.said.String(), "the disk has changed since the download began; repeat the command") {
		t.Errorf("the device of a stopped VM, its pod evicted: %v", d)
	}
	if d := ova.ended(); d.err != nil {
		t.Errorf("an OVA, its pod evicted: %v", d)
	} else if members := verifyOVA(t, d.stream); members != 4 {
		t.Errorf("an OVA, its pod evicted, has %d members", members)
	}

	for _, early := range []bool{false, true} {
		c.downloadKilled(t, ns, "disk", whole, early, "own", "--snapshot=taken", "--readiness-timeout=5m")
		left := &metav1.PartialObjectMetadata{}
		left.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(exports.Kind))
		key := client.ObjectKey{Namespace: ns, Name: "own"}
		if err := c.Client.Get(t.Context(), key, left); !apierrors.IsNotFound(err) {
			t.Errorf("killed early %v: the export that the first run had made is left: %v", early, err)
		}
	}
}

// A download of a snapshot's export goes on when virt-api is killed, and so does an upload. No other test runs beside
// that.
func TestVMExportWithoutAPI(t *testing.T) {
	needSnapshots(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	data := c.exported(t, ns, map[string]string{"disk": "filesystem"})
	held := c.holdUpload(t, ns, "uploaded", data[:8<<20])
	d := c.beginDownload(t, ns, "snap", "--volume=disk")
	killed, now := map[types.UID]bool{}, int64(0)
	for _, pod := range c.componentPods(t, names.VirtAPI) {
		killed[pod.UID] = true
		if err := c.Kube.CoreV1().Pods(names.Namespace).Delete(t.Context(), pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "virt-api has ended", func() string { // else the rest of the upload may pass before
		left := 0
		for uid := range killed {
			left += len(named(processes(t, string(uid)), processServer))
		}
		if left > 0 {
			return fmt.Sprintf("%d processes run", left)
		}
		return ""
	})
	held.resume()
	go d.goOn()
	d.hasImage(t, "virt-api killed", data)
	c.waitComponents(t, ns, killed)
	if state, err := held.ends(); err != nil || !has(&state, data[:8<<20]) || held.api.opened < 2 {
		t.Errorf("virt-api killed amid an upload: %+v, %d streams: %v", state, held.api.opened, err)
	}
}

// exported makes claims of volume modes with the same image, a stopped VM "vm" that has them, and export "snap" of a
// snapshot of it, "taken". It returns the image.
func (c *cluster) exported(t *testing.T, ns string, modes map[string]string) []byte {
	t.Helper()
	data := make([]byte, 96<<20) // more than the connections' buffers take
	_, _ = rand.Read(data)       // never fails
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	uploads := map[string]<-chan exited{}
	for name, mode := range modes {
		uploads[name] = c.beginVirtctl(t, "-n", ns, "image-upload", "pvc", name, "--size=160Mi", "--image-path="+image,
			"--volume-mode="+mode, "--wait-secs=120")
	}
	for name, upload := range uploads {
		if got := <-upload; got.code != 0 {
			t.Fatalf("the upload to %s: %s", name, got)
		}
	}
	disks := slices.Sorted(maps.Keys(modes))
	if err := c.Client.Create(t.Context(), newVM(ns, "vm", v1.RunStrategyHalted, withDisks(disks...))); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "snapshot", "create", "vm", "taken", "--wait")
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "snap", "--snapshot=taken")
	return data
}

// download is a virtctl that downloads to a pipe. Nobody reads more of it than the beginning before goOn: the rest does
// not come before.
type download struct {
	cmd  *exec.Cmd
	out  io.Reader
	said bytes.Buffer
	done chan struct{} // closed when stream and err are there

	stream []byte
	err    error
}

func (d *download) String() string { return fmt.Sprintf("%v\n%s", d.err, &d.said) }

// beginDownload returns when the beginning has come.
func (c *cluster) beginDownload(t *testing.T, ns, export string, args ...string) *download {
	t.Helper()
	d := &download{done: make(chan struct{}), stream: make([]byte, 1<<20)}
	d.cmd = exec.CommandContext(t.Context(), c.Bin("virtctl"), append([]string{
		"--kubeconfig", c.Kubeconfig, "--context", c.Name, "-n", ns, "vmexport", "download", export, "--output=-",
		"--readiness-timeout=5m",
	}, args...)...)
	d.cmd.Stderr = &d.said
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = out
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, d.stream); err != nil {
		err = errors.Join(err, d.cmd.Wait())
		t.Fatalf("vmexport download %s %v: %v\n%s", export, args, err, &d.said)
	}
	return d
}

// goOn reads the rest.
func (d *download) goOn() {
	defer close(d.done)
	rest, err := io.ReadAll(d.out)
	d.stream, d.err = append(d.stream, rest...), errors.Join(err, d.cmd.Wait())
}

// ended waits for the end.
func (d *download) ended() *download {
	<-d.done
	return d
}

// disk waits for the end, and unpacks the disk; nil if the download failed.
func (d *download) disk(t *testing.T) []byte {
	t.Helper()
	if d.ended(); d.err != nil {
		return nil
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(d.stream))
	if err != nil {
		t.Fatal(err)
	}
	disk, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// hasImage fails unless the disk is an image, and zeros after it.
func (d *download) hasImage(t *testing.T, what string, image []byte) {
	t.Helper()
	if got := d.disk(t); !bytes.HasPrefix(got, image) || len(bytes.Trim(got[len(image):], "\x00")) > 0 {
		t.Errorf("%s: %d bytes: %v", what, len(got), d)
	}
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
