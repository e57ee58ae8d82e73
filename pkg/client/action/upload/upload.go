// Package upload sends a disk image to a PersistentVolumeClaim through the API server, and goes on after a cut where
// the claim's side is. It looks at the image first, so that one which would be refused is not sent.
package upload

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// API is what the package needs of a client.
type API interface {
	Put(ctx context.Context, resource, namespace, name, subresource string, body any) error
	CreateObject(ctx context.Context, group, namespace, resource string, object *unstructured.Unstructured,
		dryRun bool) (*unstructured.Unstructured, error)
	UploadState(ctx context.Context, namespace, claim string) (uploads.State, error)
	Upload(ctx context.Context, namespace, claim, session string) (*stream.Conn, error)
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Image is a file with an image.
type Image struct {
	io.ReaderAt
	Size int64
	// Format is what it is once it is decompressed; empty is found out.
	Format imageformat.Format
}

// Claim is one that is made for the image.
type Claim struct {
	Size                                 string
	StorageClass, AccessMode, VolumeMode string
	// Annotations are those of the claim.
	Annotations map[string]string
	// There is whether the claim is there already, and may be taken: then it is not made.
	There bool
}

// Options of an upload.
type Options struct {
	Namespace, Claim string
	Image            Image
	// ContainerDisk is the container image whose disk the cluster takes; then there is no Image. Nil for none.
	ContainerDisk *uploads.ContainerDisk
	// Create makes the claim, unless it says that it is there; nil needs it to be there.
	Create *Claim
	// Labels are given to the claim when it has the disk.
	Labels map[string]string
	// Session is a random name of this client, hexadecimal.
	Session string
	// Patience is how long to wait without progress: for the pod at first, and after a cut.
	Patience time.Duration
	// Show, which may be nil, is told of the state as it changes.
	Show func(uploads.State)
	// Waits, which may be nil, is told why an upload that has been asked for has not begun after a while; once.
	Waits func(why string)
	// Again, which may be nil, is told why the upload begins anew with another pod.
	Again func(why string)
}

// NewSession returns a name for Options.Session.
func NewSession() string {
	session := make([]byte, 16)
	_, _ = rand.Read(session) // never fails
	return hex.EncodeToString(session)
}

// poll is how often the state is asked for when no stream tells it.
const poll = 500 * time.Millisecond

// chunk is how many bytes are sent at once.
const chunk = 64 << 10

// Report is how an upload ended.
type Report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Bytes is how many bytes were sent. Of a raw file with holes a gzip stream without them is sent, on Linux.
	Bytes int64 `json:"bytes"`
	// SHA256 is the checksum of what was sent, hexadecimal; it was verified. It is empty where the image went to CDI,
	// which has none.
	SHA256 string `json:"sha256"`
	// Format is what the image was once it was decompressed: raw, qcow2, vmdk, vhd or vhdx.
	Format string `json:"format"`
	// Compression is how the bytes came: gzip, xz or zstd; empty for not compressed.
	Compression string `json:"compression,omitempty"`
	// VirtualSize is the size of the image's disk, bytes.
	VirtualSize int64 `json:"virtualSize"`
	// DiskSize is the size of the disk on the claim, bytes; 0 where CDI has made it.
	DiskSize int64 `json:"diskSize"`
	// Via is how the image went: native, through the API server, or cdi, through CDI's upload proxy.
	Via string `json:"via"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	r.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// NewReport returns the report of an upload.
func NewReport(namespace, claim string, state uploads.State, took time.Duration) *Report {
	return &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "UploadReport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim},
		Bytes:      state.Received, SHA256: state.SHA256, Format: string(state.Format),
		Compression: string(state.Compression), VirtualSize: state.VirtualSize, DiskSize: state.DiskSize,
		Via: "native", Seconds: took.Round(time.Millisecond).Seconds(),
	}
}

// Check looks at an image, and refuses one that a claim would not take. The size of its disk is 0 when it is
// compressed.
func (i Image) Check() (imageformat.Info, error) {
	if i.Size <= 0 {
		return imageformat.Info{}, &imageformat.RefusedError{Reason: "the image is empty"}
	}
	head := make([]byte, min(i.Size, imageformat.HeadSize))
	if _, err := i.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return imageformat.Info{}, fmt.Errorf("read the image: %w", err)
	}
	if imageformat.CompressionOf(head) != imageformat.None {
		return imageformat.Info{Format: i.Format}, nil
	}
	format := i.Format
	if format == "" {
		var err error
		if format, err = imageformat.Detect(head); err != nil {
			return imageformat.Info{}, err
		}
	}
	return imageformat.Check(i, i.Size, format)
}

// ID returns the name of an upload of the image: another run of the program goes on with it.
func (i Image) ID() (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %s ", i.Size, i.Format)
	for _, at := range []int64{0, i.Size / 2, max(0, i.Size-chunk)} {
		if _, err := io.Copy(sum, io.NewSectionReader(i, at, chunk)); err != nil {
			return "", fmt.Errorf("read the image: %w", err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// Cancel ends the upload of any image to a claim.
func Cancel(ctx context.Context, api API, namespace, claim string) error {
	state, err := api.UploadState(ctx, namespace, claim)
	if err != nil {
		return fmt.Errorf("look at the upload to claim %s/%s: %w", namespace, claim, err)
	}
	if state.Phase.Final() {
		return fmt.Errorf("no image is being uploaded to claim %s/%s: the last upload has ended (%s)", namespace, claim,
			state.Phase)
	}
	cancel := uploads.Request{ID: state.ID, Cancel: true}
	if err := api.Put(ctx, client.Claims, namespace, claim, uploads.Subresource, cancel); err != nil {
		return fmt.Errorf("cancel the upload to claim %s/%s: %w", namespace, claim, err)
	}
	return nil
}

// Run uploads, and returns the last state.
func Run(ctx context.Context, api API, o Options) (uploads.State, error) {
	if err := o.prepare(ctx, api); err != nil {
		return uploads.State{}, err
	}
	request, err := o.request()
	if err != nil {
		return uploads.State{}, err
	}
	s := &sending{Options: o, api: api, request: request, sum: sha256.New(), moved: time.Now()}
	if err := s.ask(ctx); err != nil {
		return uploads.State{}, err
	}
	s.state.Phase = uploads.Pending
	return s.run(ctx)
}

// request is what the server is asked for. Another run of the program asks for the same.
func (o Options) request() (uploads.Request, error) {
	if o.ContainerDisk != nil {
		sum := sha256.Sum256([]byte(o.ContainerDisk.Image + " " + o.ContainerDisk.Path))
		return uploads.Request{
			ID: hex.EncodeToString(sum[:16]), ContainerDisk: o.ContainerDisk, Labels: o.Labels,
		}, nil
	}
	id, err := o.Image.ID()
	return uploads.Request{ID: id, Size: o.Image.Size, Format: o.Image.Format, Labels: o.Labels}, err
}

// prepare makes the claim.
func (o Options) prepare(ctx context.Context, api API) error {
	if o.Create == nil || o.Create.There {
		return nil
	}
	spec := map[string]any{
		"accessModes": []any{o.Create.AccessMode},
		"volumeMode":  o.Create.VolumeMode,
		"resources":   map[string]any{"requests": map[string]any{"storage": o.Create.Size}},
	}
	if o.Create.StorageClass != "" {
		spec["storageClassName"] = o.Create.StorageClass
	}
	metadata := map[string]any{"name": o.Claim, "namespace": o.Namespace}
	if len(o.Create.Annotations) > 0 {
		annotations := map[string]any{}
		for key, value := range o.Create.Annotations {
			annotations[key] = value
		}
		metadata["annotations"] = annotations
	}
	_, err := api.CreateObject(ctx, "/api/v1", o.Namespace, client.Claims,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": metadata, "spec": spec,
		}}, false)
	switch {
	case apierrors.IsAlreadyExists(err):
		// The upload would replace its disk, and whose it is is not known.
		return fmt.Errorf("make claim %s/%s: it is there already, made meanwhile or not to be read; choose another "+
			"name, or repeat the command as somebody who may read it: %w", o.Namespace, o.Claim, err)
	case err != nil:
		return fmt.Errorf("make claim %s/%s: %w", o.Namespace, o.Claim, err)
	}
	return nil
}
