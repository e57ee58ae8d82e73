//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// heldUpload is an upload of which half is sent, and the rest only when resume was called.
type heldUpload struct {
	api    *cutting
	data   *bytes.Reader
	once   sync.Once
	half   chan struct{}
	on     chan struct{}
	resume func()
	done   chan struct{} // closed when state and err are there
	state  uploads.State
	err    error
}

// ReadAt waits in the middle of the image once it is being sent.
func (h *heldUpload) ReadAt(p []byte, at int64) (int, error) {
	h.api.mu.Lock()
	sending := h.api.opened > 0 // else its name is made of it
	h.api.mu.Unlock()
	if sending && at >= h.data.Size()/2 {
		h.once.Do(func() { close(h.half) })
		<-h.on
	}
	return h.data.ReadAt(p, at)
}

// holdUpload uploads an image to a claim that it makes, and returns when a part of the first half has arrived.
func (c *cluster) holdUpload(t *testing.T, ns, claim string, image []byte) *heldUpload {
	t.Helper()
	h := &heldUpload{
		api: &cutting{Client: c.api(t)}, data: bytes.NewReader(image),
		half: make(chan struct{}), on: make(chan struct{}), done: make(chan struct{}),
	}
	h.resume = sync.OnceFunc(func() { close(h.on) })
	go func() {
		defer close(h.done)
		h.state, h.err = upload.Run(t.Context(), h.api, upload.Options{
			Namespace: ns, Claim: claim, Image: upload.Image{ReaderAt: h, Size: int64(len(image))},
			Session: upload.NewSession(), Patience: patience * time.Minute,
			Create: &upload.Claim{
				Size: "64Mi", AccessMode: string(corev1.ReadWriteOnce),
				VolumeMode: string(corev1.PersistentVolumeFilesystem),
			},
		})
	}()
	t.Cleanup(func() {
		h.resume()
		<-h.done
	})
	select {
	case <-h.half:
	case <-h.done:
		t.Fatalf("the upload to %s has ended before its half: %+v: %v", claim, h.state, h.err)
	}
	eventually(t, 30*time.Second, "bytes have arrived at "+claim, func() string {
		state, err := h.api.UploadState(t.Context(), ns, claim)
		if err != nil || state.Phase != uploads.Receiving || state.Received == 0 {
			return fmt.Sprintf("%+v, %v", state, err)
		}
		return ""
	})
	return h
}

// ends lets an upload go on, and returns how it ended.
func (h *heldUpload) ends() (uploads.State, error) {
	h.resume()
	<-h.done
	return h.state, h.err
}

// has reports that an upload has put all of an image on its claim.
func has(state *uploads.State, image []byte) bool {
	return state != nil && state.Phase == uploads.Succeeded && state.Received == int64(len(image)) &&
		state.SHA256 == fmt.Sprintf("%x", sha256.Sum256(image))
}

// exited is how a run of virtctl has ended.
type exited struct {
	code int
	said string // on standard error
}

func (e exited) String() string { return fmt.Sprintf("exit code %d: %s", e.code, e.said) }

// beginVirtctl runs virtctl beside the test.
func (c *cluster) beginVirtctl(t *testing.T, args ...string) <-chan exited {
	out := make(chan exited, 1)
	go func() {
		_, stderr, err := c.Virtctl(t.Context(), nil, args...)
		var exit *exec.ExitError
		switch {
		case err == nil:
			out <- exited{0, stderr}
		case errors.As(err, &exit):
			out <- exited{exit.ExitCode(), stderr}
		default:
			out <- exited{-1, err.Error()}
		}
	}()
	return out
}

// viewer makes a user who has the role view in a namespace.
func (c *cluster) viewer(t *testing.T, ns string) string {
	t.Helper()
	user := "viewer-of-" + ns
	c.grant(t, ns, user, "view")
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "user has the role view", func() string {
		return missing(t, kube, &authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: "get", Resource: "persistentvolumeclaims",
		})
	})
	return user
}

// uploaded is the claim's state of its last upload; nil for none.
func (c *cluster) uploaded(t *testing.T, ns, claim string) *uploads.State {
	t.Helper()
	got, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return uploads.StateOf(got.Annotations)
}

// An upload whose pod is evicted amid the sending begins anew, or has failed and is repeated; meanwhile a second one is
// refused, of another image and of the same, and somebody who may only look gets no further than the missing right. A
// quota that refuses the pod is named, and the repeated command ends the upload when the quota is gone. An image with a
// backing file is refused by virtctl, and by the pod where it comes compressed, and then the claim takes a good one. A
// claim that binds late is bound.
func TestImageUploadDisturbed(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c, dir := theCluster, t.TempDir()
	ns, full := c.namespace(t, "restricted"), c.namespace(t, "restricted")
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	image, other := make([]byte, 8<<20), make([]byte, 4<<20)
	_, _ = rand.Read(image) // never fails
	_, _ = rand.Read(other)
	imagePath, otherPath := file("image", image), file("other", other)
	to := func(ns, claim, path string, more ...string) []string {
		return append([]string{
			"-n", ns, "image-upload", "pvc", claim, "--image-path=" + path, "--via=native", "--wait-secs=120",
		}, more...)
	}
	said := func(what string, got exited, code int, words ...string) {
		t.Helper()
		for _, want := range words {
			if got.code != code || !strings.Contains(got.said, want) {
				t.Errorf("%s: %s\nwant exit code %d, %q", what, got, code, want)
			}
		}
	}

	quota, err := c.Kube.CoreV1().ResourceQuotas(full).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-pods"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the quota is known", func() string {
		if quota, err = c.Kube.CoreV1().ResourceQuotas(full).Get(t.Context(), quota.Name,
			metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if len(quota.Status.Hard) == 0 {
			return "not yet"
		}
		return ""
	})
	refused := c.beginVirtctl(t, to(full, "refused", imagePath, "--size=64Mi", "--wait-secs=36")...)
	withLate := os.Getenv("VIRTKIT_E2E_STORAGE") != "hostpath" // else there is no class that binds late
	var late <-chan exited
	if withLate {
		late = c.beginVirtctl(t, to(ns, "late", imagePath, "--size=64Mi", "--storage-class=local-node")...)
	}
	base, hostile := file("base", make([]byte, 1<<20)), filepath.Join(dir, "hostile.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", base, "-F", "raw",
		hostile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(hostile)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	packedPath := file("hostile.qcow2.gz", packed.Bytes())
	packedSent := c.beginVirtctl(t, to(ns, "packed", packedPath, "--size=64Mi")...)
	const backed = "the qcow2 image has a backing file, which is not part of it"
	said("an image with a backing file", <-c.beginVirtctl(t, to(ns, "hostile", hostile, "--size=64Mi")...),
		cli.ExitFailure, backed)
	if _, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "hostile",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("virtctl has made the claim of an image that it refuses: %v", err)
	}

	held := c.holdUpload(t, ns, "disk", image)
	said("another image", <-c.beginVirtctl(t, to(ns, "disk", otherPath, "--no-create")...), cli.ExitFailure,
		"another image is being uploaded to it since", "image-upload pvc disk --cancel")
	said("another client", <-c.beginVirtctl(t, to(ns, "disk", imagePath, "--no-create", "--wait-secs=3")...),
		cli.ExitTimeout, "it has not gone on for 3s", "another client sends this image at the moment")
	user := c.viewer(t, ns)
	as := func(args ...string) exited { return <-c.beginVirtctl(t, append([]string{"--as", user}, args...)...) }
	const subresource = "persistentvolumeclaims/upload.subresources.kubevirt.io"
	said("a viewer's upload", as(to(ns, "disk", imagePath, "--no-create")...), cli.ExitNotAllowed,
		fmt.Sprintf("user %q may not update %s in namespace %q", user, subresource, ns))
	said("a viewer's cancellation", as("-n", ns, "image-upload", "pvc", "disk", "--cancel"), cli.ExitNotAllowed,
		fmt.Sprintf("user %q may not get %s in namespace %q", user, subresource, ns))
	said("a viewer's claim", as(to(ns, "theirs", imagePath, "--size=64Mi")...), cli.ExitNotAllowed,
		fmt.Sprintf("user %q may not create persistentvolumeclaims in namespace %q", user, ns))

	claim, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "disk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := uploads.RequestOf(claim.Annotations)
	if request == nil || request.Cancel {
		t.Fatalf("the claim has no upload under way: %v", claim.Annotations)
	}
	c.evictPod(t, ns, uploads.PodName(claim.UID, request.ID))
	state, err := held.ends()
	if failed := (*upload.FailedError)(nil); errors.As(err, &failed) {
		// The controller has seen how the pod ended before it was gone.
		if !strings.Contains(err.Error(), "repeat the upload") {
			t.Errorf("the pod evicted: %v", err)
		}
		said("repeated", <-c.beginVirtctl(t, to(ns, "disk", imagePath, "--size=64Mi")...), cli.ExitOK, "")
	} else if err != nil {
		t.Errorf("the pod evicted: %+v: %v", state, err)
	}
	if state := c.uploaded(t, ns, "disk"); !has(state, image) {
		t.Errorf("after the eviction the claim has %+v", state)
	}

	said("a quota", <-refused, cli.ExitTimeout, "it has not gone on for 36s", "the upload's pod is refused: ",
		"exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0")
	if err := c.Kube.CoreV1().ResourceQuotas(full).Delete(t.Context(), quota.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := c.beginVirtctl(t, to(full, "refused", imagePath, "--size=64Mi")...)
	said("an image with a backing file, compressed", <-packedSent, cli.ExitFailure, backed)
	if state := c.uploaded(t, ns, "packed"); state == nil || state.Phase != uploads.Failed ||
		!strings.Contains(state.Message, backed) {
		t.Errorf("of the hostile image the claim says %+v", state)
	}
	said("a good image after it", <-c.beginVirtctl(t, to(ns, "packed", otherPath, "--no-create")...), cli.ExitOK, "")
	if state := c.uploaded(t, ns, "packed"); !has(state, other) {
		t.Errorf("after the hostile image the claim has %+v", state)
	}
	if withLate {
		said("a claim that binds late", <-late, cli.ExitOK, "")
		class, err := c.Kube.StorageV1().StorageClasses().Get(t.Context(), "local-node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
			t.Errorf("class local-node binds %v", class.VolumeBindingMode)
		}
		if state := c.uploaded(t, ns, "late"); !has(state, image) {
			t.Errorf("the claim that binds late has %+v", state)
		}
	}
	said("after the quota", <-again, cli.ExitOK, "")
	if state := c.uploaded(t, full, "refused"); !has(state, image) {
		t.Errorf("after the quota the claim has %+v", state)
	}
}
