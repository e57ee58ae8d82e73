// The server that it talks to runs in a pod, on Linux only.

//go:build linux

package upload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/launcher/uploader"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// cluster has one claim, a directory, and the server of the real pod behind a websocket.
type cluster struct {
	t    *testing.T
	dir  string
	http *httptest.Server
	pods sync.WaitGroup

	mu        sync.Mutex
	socket    string
	log       string
	request   uploads.Request
	cancelled bool
	opened    int
	// refuse is the error of each request, cut after how many bytes a stream is cut, for the first cuts of them.
	refuse error
	cut    int64
	cuts   int
	ctx    context.Context
	// interrupts is how many pods are ended while they receive, endPod ends the present one.
	interrupts int
	endPod     context.CancelFunc
	// image is where the container image of an upload is mounted.
	image string
	// taken says that there is a claim of the name.
	taken bool
	// warnings are the events of the claim.
	warnings []corev1.Event
}

func (c *cluster) Read(_ context.Context, path string, query url.Values, into any) error {
	want := "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=c,type=Warning"
	if got := query.Get("fieldSelector"); path != "/api/v1/namespaces/ns/events" || got != want {
		c.t.Errorf("reads %s of %s", path, got)
	}
	into.(*corev1.EventList).Items = slices.Clone(c.warnings)
	return nil
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = ctx
	c.http = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { cancel(); c.pods.Wait(); c.http.Close() })
	return c
}

func (c *cluster) Put(_ context.Context, _, _, _, _ string, body any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := body.(uploads.Request)
	if err := request.Check(); err != nil || c.refuse != nil {
		return errors.Join(err, c.refuse)
	}
	if _, err := os.Stat(c.log); c.socket != "" && err != nil { // the pod has not ended
		c.cancelled = request.Cancel
		return nil
	}
	run, err := os.MkdirTemp("", "u") // short, for a socket's path
	if err != nil {
		return err
	}
	c.t.Cleanup(func() { os.RemoveAll(run) })
	c.request, c.socket, c.log = request, filepath.Join(run, "s"), filepath.Join(run, "log")
	o := uploader.Options{
		Request: request, Socket: c.socket, Directory: c.dir, Capacity: 64 << 20, Idle: time.Minute,
		ConvertLimit: time.Minute, TerminationLog: c.log, Log: slog.New(slog.DiscardHandler),
	}
	if request.ContainerDisk != nil {
		o.ImageDirectory, o.Image = c.image, request.ContainerDisk.Image
	}
	ctx, end := context.WithCancel(c.ctx)
	c.endPod = end
	c.pods.Go(func() { defer end(); _ = uploader.Run(ctx, o) }) // its state says it
	return nil
}

func (c *cluster) CreateObject(
	context.Context, string, string, string, *unstructured.Unstructured, bool,
) (*unstructured.Unstructured, error) {
	if c.taken {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c")
	}
	return nil, nil
}

func (c *cluster) dial(order uploads.Order) (net.Conn, error) {
	c.mu.Lock()
	socket := c.socket
	c.mu.Unlock()
	conn, err := net.Dial("unix", socket)
	if err == nil {
		_, err = io.WriteString(conn, uploads.Encode(order)+"\n")
	}
	return conn, err
}

func (c *cluster) UploadState(context.Context, string, string) (uploads.State, error) {
	if text, err := os.ReadFile(c.log); err == nil {
		if state := uploads.ParseState(text); state != nil {
			return *state, nil
		}
	}
	conn, err := c.dial(uploads.Order{})
	if err != nil {
		return uploads.State{Phase: uploads.Pending, Message: "no pod yet"}, nil
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	var reply uploads.Reply
	err = errors.Join(err, json.Unmarshal(line, &reply))
	return reply.State, err
}

func (c *cluster) Upload(ctx context.Context, _, _, session string) (*stream.Conn, error) {
	target, err := url.Parse(c.http.URL + "/?session=" + session)
	if err != nil {
		return nil, err
	}
	return stream.DialURL(ctx, target, nil, nil, stream.Options{})
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	pod, err := c.dial(uploads.Order{Send: true, Session: r.URL.Query().Get("session")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{Linger: time.Millisecond})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.opened++
	cut, end := c.opened <= c.cuts, func() {}
	if c.interrupts > 0 {
		c.interrupts--
		cut, end = true, c.endPod
	}
	c.mu.Unlock()
	if !cut {
		_ = stream.Splice(c.ctx, conn, pod)
		return
	}
	go func() { _, _ = io.Copy(conn, pod) }()
	_, _ = io.CopyN(pod, conn, c.cut)
	end()
	_ = pod.Close()
	_ = conn.Close()
}

func TestRun(t *testing.T) {
	data := make([]byte, 3<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data[:2<<20] {
		data[i] = byte(r.Uint32())
	}
	for name, cut := range map[string]int64{
		"whole": -1, "cut at once": 0, "cut": 100_001, "cut at the checksum": 3<<20 + 5,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			if cut >= 0 {
				c.cut, c.cuts = cut, 3
			}
			var shown []int64
			state, err := Run(t.Context(), c, Options{
				Namespace: "ns", Claim: "c", Create: &Claim{Size: "1Gi"},
				Image:   Image{ReaderAt: bytes.NewReader(data), Size: int64(len(data))},
				Session: "aa", Patience: 30 * time.Second,
				Show: func(s uploads.State) { shown = append(shown, s.Received) },
			})
			if err != nil || state.Phase != uploads.Succeeded || state.Received != int64(len(data)) {
				t.Fatalf("%+v, %v", state, err)
			}
			got, err := os.ReadFile(filepath.Join(c.dir, "disk.img"))
			if err != nil || !bytes.Equal(got[:len(data)], data) {
				t.Errorf("the disk is not what was sent: %v", err)
			}
			if len(shown) == 0 || cut >= 0 && c.opened < 2 {
				t.Errorf("shown %v, %d streams", shown, c.opened)
			}
			report := NewReport("ns", "c", state, time.Second)
			if report.Bytes != int64(len(data)) || report.SHA256 == "" || report.Format != "raw" {
				t.Errorf("%+v", report)
			}
		})
	}
}

// An upload whose pod is ended begins anew with another one, but not for ever.
func TestPodsThatAreEnded(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for pods, want := range map[int]string{2: "", mostPods: "the upload's pod was ended: repeat the upload"} {
		c := newCluster(t)
		c.cut, c.interrupts = 300_000, pods
		var again []string
		state, err := Run(t.Context(), c, Options{
			Namespace: "ns", Claim: "c", Image: Image{ReaderAt: bytes.NewReader(data), Size: int64(len(data))},
			Session: "aa", Patience: time.Minute,
			Again: func(why string) { again = append(again, why) },
		})
		var failed *FailedError
		switch {
		case want == "" && (err != nil || state.Phase != uploads.Succeeded):
			t.Fatalf("%+v, %v", state, err)
		case want != "" && (!errors.As(err, &failed) || failed.Error() != want):
			t.Errorf("%d pods: %v", pods, err)
		}
		if n := min(pods, mostPods-1); len(again) != n || again[0] != "the upload's pod was ended" {
			t.Errorf("%d pods: begun anew for %q", pods, again)
		}
		if want != "" {
			continue
		}
		got, err := os.ReadFile(filepath.Join(c.dir, "disk.img"))
		if err != nil || !bytes.Equal(got[:len(data)], data) {
			t.Errorf("the disk is not what was sent: %v", err)
		}
	}
}

// The disk of a claim that is there, and of which nobody has said that it may be taken, is not replaced.
func TestTakenClaim(t *testing.T) {
	c := newCluster(t)
	c.taken = true
	o := Options{
		Namespace: "ns", Claim: "c", Create: &Claim{Size: "1Gi"},
		Image:   Image{ReaderAt: bytes.NewReader(make([]byte, 512)), Size: 512},
		Session: "aa", Patience: 30 * time.Second,
	}
	if _, err := Run(t.Context(), c, o); !apierrors.IsAlreadyExists(err) || c.opened > 0 || c.socket != "" {
		t.Errorf("%v, %d streams, %q", err, c.opened, c.socket)
	}
	o.Create.There = true
	if state, err := Run(t.Context(), c, o); err != nil || state.Phase != uploads.Succeeded {
		t.Errorf("%+v, %v", state, err)
	}
}

// Another run of the program goes on where the first was ended, and its checksum is that of all bytes.
func TestAnotherRun(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	c := newCluster(t)
	c.cut, c.cuts = 300_000, 1
	image := Image{ReaderAt: bytes.NewReader(data), Size: int64(len(data))}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, c, Options{
		Image: image, Session: "aa", Patience: time.Minute,
		Show: func(s uploads.State) {
			if s.Received > 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	state, err := Run(t.Context(), c, Options{Image: image, Session: "bb", Patience: time.Minute})
	if err != nil || state.Phase != uploads.Succeeded {
		t.Fatalf("%+v, %v", state, err)
	}
}

func TestRunFails(t *testing.T) {
	image := Image{ReaderAt: strings.NewReader(strings.Repeat("x", 1000)), Size: 1000}
	run := func(c *cluster, image Image, patience time.Duration) error {
		_, err := Run(t.Context(), c, Options{
			Namespace: "ns", Claim: "c", Image: image, Session: "aa", Patience: patience,
		})
		return err
	}
	t.Run("forbidden", func(t *testing.T) {
		c := newCluster(t)
		c.refuse = apierrors.NewForbidden(schema.GroupResource{}, "c", errors.New("no right"))
		if err := run(c, image, time.Minute); !apierrors.IsForbidden(err) {
			t.Errorf("%v", err)
		}
	})
	t.Run("no pod", func(t *testing.T) {
		c := newCluster(t)
		c.socket, c.log = "/none", "/none" // an upload that is known, and has no pod
		err := run(c, image, time.Millisecond)
		if !errors.Is(err, action.ErrTimeout) || !strings.Contains(err.Error(), "no pod yet") {
			t.Errorf("%v", err)
		}
	})
	t.Run("refused by the class", func(t *testing.T) {
		c := newCluster(t)
		c.socket, c.log = "/none", "/none"
		for at, message := range []string{"older", "newest", "old"} {
			c.warnings = append(c.warnings, corev1.Event{
				LastTimestamp: metav1.Unix([]int64{1, 3, 2}[at], 0), Message: message,
			})
		}
		err := run(c, image, time.Millisecond)
		if !errors.Is(err, action.ErrTimeout) || !strings.HasSuffix(err.Error(), "about the claim is: newest") {
			t.Errorf("%v", err)
		}
	})
	t.Run("refused by the pod", func(t *testing.T) {
		c := newCluster(t)
		large := Image{ReaderAt: bytes.NewReader(make([]byte, 65<<20)), Size: 65 << 20}
		err := run(c, large, time.Minute)
		var failed *FailedError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "larger claim") {
			t.Errorf("%v", err)
		}
	})
	t.Run("file that shrinks", func(t *testing.T) {
		short := Image{ReaderAt: strings.NewReader("x"), Size: 1000}
		err := run(newCluster(t), short, time.Minute)
		if err == nil || !strings.Contains(err.Error(), "read the image") {
			t.Errorf("%v", err)
		}
	})
}

func TestCheckImage(t *testing.T) {
	for text, want := range map[string]string{
		"": "empty", "KDMV": "corrupt header", "PK\x03\x04": "ZIP", "\x1f\x8b…": "", "boot": "",
	} {
		_, err := Image{ReaderAt: strings.NewReader(text), Size: int64(len(text))}.Check()
		var refused *imageformat.RefusedError
		if errors.As(err, &refused) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	a, err := Image{ReaderAt: strings.NewReader("a"), Size: 1}.ID()
	b, other := Image{ReaderAt: strings.NewReader("b"), Size: 1}.ID()
	if err != nil || other != nil || a == b || len(a) != 32 {
		t.Errorf("%s and %s", a, b)
	}
}

func TestCancel(t *testing.T) {
	c := newCluster(t)
	request := uploads.Request{ID: "0123456789abcdef", Size: 5}
	if err := c.Put(t.Context(), "", "", "", "", request); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		state, err := c.UploadState(t.Context(), "", "")
		if err == nil && state.Phase == uploads.Receiving {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", state, err)
		}
	}
	if err := Cancel(t.Context(), c, "ns", "c"); err != nil || !c.cancelled {
		t.Errorf("%v", err)
	}
}

// The disk of a container image is taken by the cluster: nothing is sent, and a second run finds the same upload.
func TestRunOfContainerDisk(t *testing.T) {
	c := newCluster(t)
	c.image = t.TempDir()
	if err := os.Mkdir(filepath.Join(c.image, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("disk"), 1<<18)
	if err := os.WriteFile(filepath.Join(c.image, "disk", "only.raw"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Namespace: "ns", Claim: "c", Create: &Claim{Size: "1Gi"}, Session: "aa", Patience: 30 * time.Second,
		ContainerDisk: &uploads.ContainerDisk{Image: "example.com/disk:1"},
	}
	for range 2 {
		state, err := Run(t.Context(), c, o)
		if err != nil || state.Phase != uploads.Succeeded || state.Received != int64(len(data)) ||
			state.ID != c.request.ID || c.opened != 0 {
			t.Fatalf("%+v, %v, %d streams", state, err, c.opened)
		}
	}
	if got, err := os.ReadFile(filepath.Join(c.dir, "disk.img")); err != nil || !bytes.HasPrefix(got, data) {
		t.Errorf("the disk is not that of the image: %v", err)
	}
}

// pulling is a cluster whose pod cannot pull its image, and then can.
type pulling struct {
	*cluster
	left int
}

func (p *pulling) UploadState(ctx context.Context, namespace, name string) (uploads.State, error) {
	if p.left--; p.left >= 0 {
		return uploads.State{Phase: uploads.Pending, Message: "its pod does not start (ErrImagePull)"}, nil
	}
	return p.cluster.UploadState(ctx, namespace, name)
}

// Why the cluster cannot take an image yet is said once, while it is waited for; and at the end, when it never could,
// rather than a conflict of a controller's that it has got over.
func TestWaits(t *testing.T) {
	const pulls, full = "its pod does not start (ErrImagePull)", "the pool has no room for 1073741824 bytes"
	for _, tc := range []struct {
		forever bool
		warning string // of the claim
		said    string
	}{
		{false, "", pulls},
		{true, "", pulls},
		{false, full, "the newest warning about the claim is: " + full},
	} {
		c := newCluster(t)
		c.image = t.TempDir()
		if err := os.Mkdir(filepath.Join(c.image, "disk"), 0o755); err != nil {
			t.Fatal(err)
		}
		disk := bytes.Repeat([]byte("disk"), 1<<18)
		if err := os.WriteFile(filepath.Join(c.image, "disk", "only.raw"), disk, 0o644); err != nil {
			t.Fatal(err)
		}
		c.warnings = []corev1.Event{{Message: "Error saving claim: Operation cannot be fulfilled on " +
			`persistentvolumeclaims "c": ` + outdated + " and try again"}}
		if tc.warning != "" {
			c.warnings = append(c.warnings, corev1.Event{Message: tc.warning})
		}
		p := &pulling{c, 5}
		if tc.forever {
			p.left = 1 << 20
		}
		var said []string
		_, err := Run(t.Context(), p, Options{
			Namespace: "ns", Claim: "c", Create: &Claim{Size: "1Gi"}, Session: "aa", Patience: 4 * time.Second,
			ContainerDisk: &uploads.ContainerDisk{Image: "example.com/disk:1"},
			Waits:         func(why string) { said = append(said, why) },
		})
		if len(said) != 1 || said[0] != tc.said {
			t.Errorf("%+v: said %q", tc, said)
		}
		if !tc.forever && err != nil {
			t.Error(err)
		}
		if tc.forever && (err == nil || !strings.HasSuffix(err.Error(), "4s: "+tc.said)) {
			t.Error(err)
		}
	}
}
