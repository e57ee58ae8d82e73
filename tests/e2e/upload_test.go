//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const tinyDisk = "../../bin/images/tiny.qcow2"

// The tiny guest's disk is uploaded as it is by virtctl to a claim that it makes, which gets the label of an instance
// type; a VM boots from it, and its write is there after a restart. The same image is refused a second time.
func TestImageUpload(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")

	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "whole", "--size=512Mi", "--image-path="+tinyDisk,
		"--default-instancetype=u1.tiny", "--wait-secs=120")
	claim, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "whole", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if state := uploads.StateOf(claim.Annotations); state == nil || state.Phase != uploads.Succeeded ||
		state.Format != "qcow2" || claim.Labels[uploads.LabelInstancetype] != "u1.tiny" {
		t.Errorf("annotations %v, labels %v", claim.Annotations, claim.Labels)
	}
	bootsFrom(t, ns, "whole")
	if _, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "image-upload", "pvc", "whole",
		"--image-path="+tinyDisk); err == nil || !strings.Contains(stderr, "has had this image since") {
		t.Errorf("a second time: %v %s", err, stderr)
	}
}

// The tiny guest's disk is uploaded raw and compressed to a block claim, and goes on after its stream was cut; a VM
// boots from it, and its write is there after a restart. TestImageUploadDisturbed has what is refused.
func TestImageUploadCut(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	raw := filepath.Join(t.TempDir(), "raw")
	if out, err := exec.Command("qemu-img", "convert", "-O", "raw", tinyDisk, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	cut := &cutting{Client: api}
	image := upload.Image{ReaderAt: &cutter{bytes.NewReader(packed.Bytes()), cut}, Size: int64(packed.Len())}
	state, err := upload.Run(t.Context(), cut, upload.Options{
		Namespace: ns, Claim: "packed", Image: image, Session: "aa", Patience: 2 * time.Minute,
		Create: &upload.Claim{Size: "512Mi", AccessMode: string(corev1.ReadWriteOnce), VolumeMode: "Block"},
	})
	if err != nil || state.Phase != uploads.Succeeded || cut.opened < 2 {
		t.Fatalf("%+v, %d streams: %v", state, cut.opened, err)
	}
	bootsFrom(t, ns, "packed")
}

// cutting is a client whose first stream is cut.
type cutting struct {
	*client.Client
	mu     sync.Mutex
	conn   *stream.Conn
	opened int
}

func (c *cutting) Upload(ctx context.Context, ns, claim, session string) (*stream.Conn, error) {
	conn, err := c.Client.Upload(ctx, ns, claim, session)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.opened++
		c.conn = conn
	}
	return conn, err
}

// cutter cuts the first stream in the middle of the image.
type cutter struct {
	io.ReaderAt
	of *cutting
}

func (c *cutter) ReadAt(p []byte, at int64) (int, error) {
	c.of.mu.Lock()
	conn, first := c.of.conn, c.of.opened == 1
	c.of.mu.Unlock()
	if first && at > 5<<20 {
		_ = conn.Close() // the next write fails
	}
	return c.ReaderAt.ReadAt(p, at)
}

// bootsFrom starts a VM from a claim, and looks for what it has written there after a restart.
func bootsFrom(t *testing.T, ns, claim string) {
	t.Helper()
	g := theCluster.create(t, newVM(ns, claim, v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		volumes := vm.Spec.Template.Spec.Volumes
		for i := range volumes {
			if volumes[i].ContainerDisk != nil {
				volumes[i].VolumeSource = v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
						PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
					},
				}
			}
		}
	}))
	g.waitLogin(t)
	const at = " bs=512 seek=800000 count=1 conv=sync,notrunc 2>/dev/null; sync"
	con := g.shell(t, "")
	con.run(t, "echo kept-data | dd of=/dev/vda"+at)
	g.virtctl(t, nil, "-n", ns, "restart", g.name, "--wait", "--timeout=120s")
	con = g.shell(t, "")
	if got := con.run(t, "dd if=/dev/vda bs=512 skip=800000 count=1 2>/dev/null | head -c 9"); got != "kept-data" {
		t.Errorf("after a restart the disk holds %q", got)
	}
}
