// Package uploads defines the upload of a disk image to a PersistentVolumeClaim: its request and its state, which are
// annotations of the claim, the protocol between a client and the upload's pod, and whether a claim may be used as a
// disk. virt-api writes the request, virt-controller makes the pod and writes the state, the pod takes the bytes, and
// virtctl sends them.
package uploads

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// Subresource is the claim's subresource through which an image is uploaded.
const Subresource = "upload"

// Annotations of a claim.
const (
	// AnnotationRequest is the upload that is under way: JSON of Request.
	AnnotationRequest = "upload.virtkit.io/request"
	// AnnotationState says how the last upload ended, or why the one under way does not go on: JSON of State.
	AnnotationState = "upload.virtkit.io/state"
	// AnnotationImage is the image, NAME/VERSION, that a claim was made for: what it is known by until it has it.
	AnnotationImage = "image.virtkit.io/wanted"
	// AnnotationMade says that the claim was made for an upload, of which there may be nothing yet; its value is
	// MadeFor. See Awaiting.
	AnnotationMade = "upload.virtkit.io/made"
)

// MadeFor is the value of AnnotationMade.
const MadeFor = "image-upload"

// Labels of a claim that say with which instance type and preference a VM boots from it; KubeVirt's.
const (
	LabelInstancetype     = "instancetype.kubevirt.io/default-instancetype"
	LabelInstancetypeKind = "instancetype.kubevirt.io/default-instancetype-kind"
	LabelPreference       = "instancetype.kubevirt.io/default-preference"
	LabelPreferenceKind   = "instancetype.kubevirt.io/default-preference-kind"
)

// Labels of a claim that has an image of a catalogue (`virtctl image`): which, and the account that cloud-init makes.
const (
	LabelImage        = "image.virtkit.io/name"
	LabelImageVersion = "image.virtkit.io/version"
	LabelImageUser    = "image.virtkit.io/user"
)

var labels = []string{
	LabelInstancetype, LabelInstancetypeKind, LabelPreference, LabelPreferenceKind,
	LabelImage, LabelImageVersion, LabelImageUser,
}

// Phase is the phase of an upload.
type Phase string

// The phases. The last three are final.
const (
	// Pending has no pod that could take bytes yet.
	Pending Phase = "Pending"
	// Receiving takes bytes.
	Receiving Phase = "Receiving"
	// Converting has all bytes, and makes the disk of them.
	Converting Phase = "Converting"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	Cancelled  Phase = "Cancelled"
)

// Final reports whether nothing more is to come.
func (p Phase) Final() bool { return p == Succeeded || p == Failed || p == Cancelled }

// Request holds what a client asks for. Another request of the same ID goes on with the upload.
type Request struct {
	// ID identifies the image: 16 to 64 hexadecimal digits.
	ID string `json:"id"`
	// Size is the number of bytes that will be sent; 0 with ContainerDisk.
	Size int64 `json:"size"`
	// ContainerDisk is the container image whose disk the pod takes, instead of bytes that are sent; nil for none.
	ContainerDisk *ContainerDisk `json:"containerDisk,omitempty"`
	// Format is the format of the decompressed bytes; "" means to detect it.
	Format imageformat.Format `json:"format,omitempty"`
	// Labels are given to the claim when the disk is there.
	Labels map[string]string `json:"labels,omitempty"`
	// Cancel ends the upload.
	Cancel bool `json:"cancel,omitempty"`
	// Since is when the upload was asked for; virt-api sets it.
	Since time.Time `json:"since,omitzero"`
	// Incomplete says that the claim has a part of an earlier upload's image: a failure leaves the claim as it was
	// before, which is no disk. virt-api sets it.
	Incomplete bool `json:"incomplete,omitempty"`
}

// ContainerDisk is a container image with a disk, as KubeVirt's volumes of that name have it.
type ContainerDisk struct {
	// Image is the reference of the image, as a container's.
	Image string `json:"image"`
	// Path is that of the disk in the image; "" means the only file below /disk.
	Path string `json:"path,omitempty"`
	// PullSecret is the Secret of the claim's namespace by which the image is pulled; "" for none.
	PullSecret string `json:"pullSecret,omitempty"`
}

// Check returns what is wrong with a container disk.
func (d ContainerDisk) Check() error {
	if len(d.Image) > maxImage {
		return fmt.Errorf("containerDisk.image: it has more than %d characters", maxImage)
	}
	if _, err := reference.ParseNormalizedNamed(d.Image); err != nil { // as the kubelet reads it
		return fmt.Errorf("containerDisk.image: %q is no reference of a container image: %w", cut(d.Image), err)
	}
	if d.Path != "" && (len(d.Path) > maxImage || !path.IsAbs(d.Path) || path.Clean(d.Path) != d.Path) {
		return fmt.Errorf("containerDisk.path: %q is no absolute path in the image", cut(d.Path))
	}
	if d.PullSecret != "" && len(validation.IsDNS1123Subdomain(d.PullSecret)) > 0 {
		return fmt.Errorf("containerDisk.pullSecret: %q is no name of a Secret", cut(d.PullSecret))
	}
	return nil
}

// IsDefault reports the label of an instance type or preference, which a copy of an image has, too.
func IsDefault(label string) bool {
	switch label {
	case LabelInstancetype, LabelInstancetypeKind, LabelPreference, LabelPreferenceKind:
		return true
	}
	return false
}

// OfNamespace reports the kind of an instance type or preference, as a label of a claim or a VM has it, of which each
// namespace has its own: outside of it there is none of that name, or another. Without a kind it is the cluster's.
func OfNamespace(kind string) bool {
	return kind != "" && !strings.Contains(strings.ToLower(kind), "cluster")
}

// IsImage reports the label of a claim that is an image of a catalogue.
func IsImage(label string) bool {
	return label == LabelImage || label == LabelImageVersion || label == LabelImageUser
}

// State is the state of an upload.
type State struct {
	// ID is the request's ID.
	ID    string `json:"id,omitempty"`
	Phase Phase  `json:"phase"`
	// Message says in a sentence why the upload waits or has failed.
	Message string `json:"message,omitempty"`
	// Received is the number of bytes that the pod has, of Size.
	Received int64 `json:"received"`
	Size     int64 `json:"size"`
	// Format is the format of the bytes; "" while it is not known.
	Format imageformat.Format `json:"format,omitempty"`
	// Compression says how the bytes came compressed; "" means not at all.
	Compression imageformat.Compression `json:"compression,omitempty"`
	// VirtualSize is the size of the image's disk, DiskSize the size of the disk on the claim, bytes.
	VirtualSize int64 `json:"virtualSize,omitempty"`
	DiskSize    int64 `json:"diskSize,omitempty"`
	// SHA256 is the checksum of the bytes that were sent, hexadecimal, once it is verified.
	SHA256 string `json:"sha256,omitempty"`
	// Intact says about a failed upload that the claim is as it was before.
	Intact bool `json:"intact,omitempty"`
	// Interrupted says about a failed upload that only its pod was ended: the same request begins it anew.
	Interrupted bool `json:"interrupted,omitempty"`
	// Ended is when the upload ended.
	Ended time.Time `json:"ended,omitzero"`
}

// SumSize is the number of hexadecimal digits of the SHA-256 of all bytes, which follow the bytes.
const SumSize = 64

// Order is the first line that a client sends to the pod's server over a connection.
type Order struct {
	// Send says that bytes follow, from where the answer says that the upload is; else the answer is all.
	Send bool `json:"send,omitempty"`
	// Session identifies a client, which may take the place of its own connection that has not ended yet.
	Session string `json:"session,omitempty"`
}

// Reply is a line that the pod's server says: one at first, and if bytes are sent others as the state changes.
type Reply struct {
	State State `json:"state"`
	// Refused says why no bytes are taken of this client now.
	Refused string `json:"refused,omitempty"`
}

// MaxLine bounds a line of the pod's server, bytes.
const MaxLine = 16 << 10

// MaxMessage bounds a sentence about an upload, bytes.
const MaxMessage = 1 << 10

const (
	maxSize    = 1 << 60
	minID      = 16
	maxID      = 64
	maxSession = 64
	maxImage   = 1 << 10
)

var (
	hex  = regexp.MustCompile(`^[0-9a-f]+$`)
	name = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// Check returns what is wrong with a request.
func (r Request) Check() error {
	switch {
	case len(r.ID) < minID || len(r.ID) > maxID || !hex.MatchString(r.ID):
		return fmt.Errorf("id: %q is not 16 to 64 hexadecimal digits", cut(r.ID))
	case r.Cancel:
		return nil
	case r.ContainerDisk != nil && r.Size != 0:
		return fmt.Errorf("size: %d bytes cannot be sent beside a container disk", r.Size)
	case r.ContainerDisk == nil && (r.Size <= 0 || r.Size > maxSize):
		return fmt.Errorf("size: %d is no number of bytes of an image", r.Size)
	case r.Format != "" && !slices.Contains(imageformat.Formats, r.Format):
		return fmt.Errorf("format: %q is not one of %v", cut(string(r.Format)), imageformat.Formats)
	}
	if r.ContainerDisk != nil {
		if err := r.ContainerDisk.Check(); err != nil {
			return err
		}
	}
	for key, value := range r.Labels {
		if !slices.Contains(labels, key) || !name.MatchString(value) {
			return fmt.Errorf("labels: %q with value %q is none that a claim gets from an upload", cut(key), cut(value))
		}
	}
	return nil
}

// CheckSession returns what is wrong with a session's name.
func CheckSession(session string) error {
	if len(session) > maxSession || session != "" && !hex.MatchString(session) {
		return fmt.Errorf("session: %q is not at most 64 hexadecimal digits", cut(session))
	}
	return nil
}

func cut(text string) string { return text[:min(len(text), maxID)] }

// asking are the annotations of a claim to which an upload was asked for, or that was made for one.
var asking = []string{AnnotationRequest, AnnotationState, AnnotationImage, AnnotationMade}

// AskedFor reports whether an upload to a claim was asked for, or the claim was made for one, whatever became of it.
// Another upload may replace its disk unasked.
func AskedFor(annotations map[string]string) bool {
	return slices.ContainsFunc(asking, func(key string) bool { _, has := annotations[key]; return has })
}

// Awaiting returns the annotations of a claim that only waits for an upload: nothing was written to it. They go when
// something else begins to write, so that no upload replaces that. There are none while an upload is under way, and of
// a claim that has an image, or a part of one, which the state says to whoever would use or replace it.
func Awaiting(annotations map[string]string) []string {
	state := StateOf(annotations)
	if state != nil && state.Phase.Final() && !state.Intact {
		return nil
	}
	return Replaced(annotations)
}

// Replaced returns the annotations of a claim that hold no longer once its whole content was replaced by other means
// than an upload. There are none while an upload is under way.
func Replaced(annotations map[string]string) []string {
	if RequestOf(annotations) != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(asking), func(key string) bool { _, has := annotations[key]; return !has })
}

// Copied changes the annotations of a claim to those of a claim with a copy of its content, as a snapshot has it, to
// which nothing is uploaded: the copy of a claim to which an image was being uploaded has a part of the image.
func Copied(annotations map[string]string) {
	if r := RequestOf(annotations); r != nil {
		annotations[AnnotationState] = Encode(State{
			ID: r.ID, Phase: Failed, Size: r.Size, Message: "the content was copied while the image was being uploaded",
		})
	}
	delete(annotations, AnnotationRequest)
	for _, key := range Awaiting(annotations) {
		delete(annotations, key)
	}
}

// RequestOf returns the upload under way to a claim; nil for none. An invalid request counts as none: whoever may write
// a claim's annotations may end its upload.
func RequestOf(annotations map[string]string) *Request {
	text, ok := annotations[AnnotationRequest]
	if !ok {
		return nil
	}
	var r Request
	if json.Unmarshal([]byte(text), &r) != nil || r.Check() != nil {
		return nil
	}
	return &r
}

// StateOf returns the state in a claim's annotations; nil for none.
func StateOf(annotations map[string]string) *State {
	text, ok := annotations[AnnotationState]
	if !ok {
		return nil
	}
	s := ParseState([]byte(text))
	if s == nil {
		return nil
	}
	return s
}

// ParseState reads a state from the upload's pod or an annotation; nil when it is invalid. Its texts are short and of
// one line.
func ParseState(text []byte) *State {
	var s State
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	switch s.Phase {
	case Pending, Receiving, Converting, Succeeded, Failed, Cancelled:
	default:
		return nil
	}
	if s.Received < 0 || s.Size < 0 || s.VirtualSize < 0 || s.DiskSize < 0 || s.Received > s.Size ||
		s.SHA256 != "" && (len(s.SHA256) != SumSize || !hex.MatchString(s.SHA256)) || len(s.ID) > maxID ||
		s.ID != "" && !hex.MatchString(s.ID) || len(s.Format) > maxID || len(s.Compression) > maxID {
		return nil
	}
	s.Message = OneLine(s.Message)
	return &s
}

// OneLine returns a text as a sentence about an upload: one printable line of bounded length.
func OneLine(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), MaxMessage)], "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}

// Encode returns a request or state as an annotation has it.
func Encode(what any) string {
	text, err := json.Marshal(what)
	if err != nil { // strings, numbers and times only
		panic(err)
	}
	return string(text)
}

// Unusable returns why a claim is no disk that a VM may use, or "" when it may be one.
func Unusable(claim string, annotations map[string]string) string {
	if RequestOf(annotations) != nil {
		return fmt.Sprintf("an image is being uploaded to PersistentVolumeClaim %q", claim)
	}
	state := StateOf(annotations)
	if state == nil || state.Phase == Succeeded || state.Intact {
		return ""
	}
	switch state.Phase {
	case Failed, Cancelled:
		return fmt.Sprintf("the upload of an image to PersistentVolumeClaim %q is incomplete: repeat it with "+
			"`virtctl image-upload pvc %s`, or remove the claim's annotation %s if what is on it is good",
			claim, claim, AnnotationState)
	}
	return ""
}

// PodName returns the name of the pod that takes an upload to a claim.
func PodName(claim types.UID, id string) string {
	return names.UploadPodPrefix + names.Hash(string(claim)+" "+id, 10)
}
