package images

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Phases of a pulled image.
const (
	// PhaseReady has the disk.
	PhaseReady = "Ready"
	// PhasePulling is being uploaded.
	PhasePulling = "Pulling"
	// PhaseUploading is PhasePulling of a claim that is no image, as `image-upload` fills one.
	PhaseUploading = "Uploading"
	// PhaseIncomplete was to have the disk, and nobody uploads it: the pull or upload was cancelled, or did not end.
	PhaseIncomplete = "Incomplete"
)

// Pulled is an image in the cluster: a claim with its disk, or a DataSource of CDI. So is a claim with a disk that is
// no image, while its upload has not ended well.
type Pulled struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the name and the namespace of the claim, or of the DataSource where there is no claim.
	metav1.ObjectMeta `json:"metadata"`
	// Image is the reference of the image: NAME/VERSION; empty for the upload of a disk that is none.
	Image string `json:"image"`
	// User is the account that cloud-init makes by default.
	User string `json:"user,omitempty"`
	// Instancetype and Preference are the defaults of VMs that boot from it.
	Instancetype string `json:"instancetype,omitempty"`
	Preference   string `json:"preference,omitempty"`
	// Claim is the name of the claim with the disk; empty for an image that is a DataSource alone.
	Claim string `json:"claim,omitempty"`
	// DataSource is the name of the DataSource that stands for it, where the cluster has CDI.
	DataSource string `json:"dataSource,omitempty"`
	// Size is what the claim has, a quantity; empty where it is not known.
	Size string `json:"size"`
	// StorageClass is the claim's.
	StorageClass string `json:"storageClass,omitempty"`
	// Phase is Ready, Pulling, Uploading, Incomplete or, of a DataSource alone, NotReady.
	Phase string `json:"phase"`
	// Message is why a DataSource is not ready, in CDI's words, or why an upload waits or has failed.
	Message string `json:"message,omitempty"`
	// Received is how many bytes of an upload have come, of Bytes; 0 where that is not known.
	Received int64 `json:"received,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *Pulled) DeepCopyObject() runtime.Object {
	out := *p
	p.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// PulledList is a list of images in the cluster.
type PulledList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	// Items are the images, by namespace, name and version.
	Items []Pulled `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *PulledList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		l.Items[i].DeepCopyInto(&out.Items[i].ObjectMeta)
	}
	return &out
}

// Of returns the image that a claim has or is to have, or the upload to it that has not ended well; false for a claim
// of something else.
func Of(claim *corev1.PersistentVolumeClaim) (Pulled, bool) {
	labels, phase := claim.Labels, uploading(claim)
	request := uploads.RequestOf(claim.Annotations)
	if request != nil && request.Labels[uploads.LabelImage] != "" {
		labels, phase = request.Labels, PhasePulling
	}
	wanted := claim.Annotations[uploads.AnnotationImage]
	if name, version, err := ParseRef(wanted); phase != PhasePulling && labels[uploads.LabelImage] == "" &&
		err == nil && wanted != "" {
		labels = map[string]string{uploads.LabelImage: name, uploads.LabelImageVersion: version}
		phase = cmp.Or(phase, PhaseIncomplete)
	}
	image := ""
	if labels[uploads.LabelImage] != "" && labels[uploads.LabelImageVersion] != "" {
		image = labels[uploads.LabelImage] + "/" + labels[uploads.LabelImageVersion]
		phase = cmp.Or(phase, PhaseReady)
	}
	if phase == "" {
		return Pulled{}, false
	}
	out := Pulled{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PulledImage"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, CreationTimestamp: claim.CreationTimestamp,
		},
		Image:        image,
		User:         labels[uploads.LabelImageUser],
		Instancetype: labels[uploads.LabelInstancetype], Preference: labels[uploads.LabelPreference],
		Claim: claim.Name, Size: sizeOf(claim), StorageClass: classOf(claim), Phase: phase,
	}
	if phase != PhaseReady {
		if request != nil {
			out.Bytes = request.Size
		}
		if state := uploads.StateOf(claim.Annotations); state != nil && (request == nil || state.ID == request.ID) {
			out.heard(*state)
		}
	}
	return out, true
}

// uploading returns the phase of a claim to which an upload goes, or that has a part of one, or nothing although it was
// made for one; "" for any other claim.
func uploading(claim *corev1.PersistentVolumeClaim) string {
	_, made := claim.Annotations[uploads.AnnotationMade]
	switch {
	case uploads.RequestOf(claim.Annotations) != nil:
		return PhaseUploading
	case uploads.Unusable(claim.Name, claim.Annotations) != "",
		made && len(uploads.Awaiting(claim.Annotations)) > 0:
		return PhaseIncomplete
	}
	return ""
}

// heard takes the state of the upload.
func (p *Pulled) heard(state uploads.State) {
	p.Received, p.Bytes, p.Message = state.Received, cmp.Or(state.Size, p.Bytes), state.Message
}

// Row returns what a table shows of a claim; nil for one that has no image, gets none, and is no copy of another.
func Row(claim *corev1.PersistentVolumeClaim) *store.Image {
	row := &store.Image{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Created: claim.CreationTimestamp.Time,
		Labels: claim.Labels, Deleting: claim.DeletionTimestamp != nil,
	}
	if from := claim.Spec.DataSource; from != nil && from.Kind == "PersistentVolumeClaim" {
		row.Of = from.Name
	}
	p, ok := Of(claim)
	if !ok && row.Of == "" {
		return nil
	}
	if ok {
		row.Ref, row.User, row.Instancetype, row.Preference = p.Image, p.User, p.Instancetype, p.Preference
		row.Size, row.Class, row.Phase = p.Size, p.StorageClass, p.Phase
		row.Received, row.Bytes, row.Message = p.Received, p.Bytes, p.Message
	}
	return row
}

// Reader is what List needs of a client.
type Reader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Get returns the image of a claim.
func Get(ctx context.Context, r Reader, namespace, name string) (*Pulled, error) {
	var claim corev1.PersistentVolumeClaim
	if err := r.Read(ctx, "/api/v1/namespaces/"+namespace+"/"+client.Claims+"/"+name, nil, &claim); err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
	}
	p, ok := Of(&claim)
	if !ok || p.Image == "" {
		return nil, fmt.Errorf("claim %s/%s has no image", namespace, name)
	}
	return &p, nil
}

// List returns the images of a namespace, or of all when it is empty: those on claims and, where the cluster has CDI,
// DataSources; and the claims to which an upload goes, or did not end well.
func List(ctx context.Context, r Reader, namespace string) (*PulledList, error) {
	path := "/api/v1/" + client.Claims
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/" + client.Claims
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Read(ctx, path, nil, &claims); err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	out := &PulledList{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PulledImageList"}}
	out.Items = []Pulled{}
	for i := range claims.Items {
		if p, ok := Of(&claims.Items[i]); ok {
			out.Items = append(out.Items, p)
		}
	}
	sources, err := dataSources(ctx, r, namespace)
	if err != nil {
		return nil, err
	}
	out.addSources(sources, claims.Items)
	slices.SortFunc(out.Items, func(a, b Pulled) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// Follower is what Follow needs of a client.
type Follower interface {
	UploadState(ctx context.Context, namespace, claim string) (uploads.State, error)
}

// followedMost is how many uploads Follow asks about, and followedFor how long it waits for all of them: virt-api would
// wait much longer for a node that does not answer.
const (
	followedMost = 16
	followedFor  = 3 * time.Second
)

// Follow asks how far the uploads under way are, which claims do not say. What may not be asked or does not answer is
// left as it is.
func (l *PulledList) Follow(ctx context.Context, f Follower) {
	ctx, cancel := context.WithTimeout(ctx, followedFor)
	defer cancel()
	var wait sync.WaitGroup
	defer wait.Wait()
	left := followedMost
	for i := range l.Items {
		p := &l.Items[i]
		if left == 0 || p.Phase != PhaseUploading && p.Phase != PhasePulling {
			continue
		}
		left--
		wait.Go(func() {
			if state, err := f.UploadState(ctx, p.Namespace, p.Name); err == nil {
				p.heard(state)
			}
		})
	}
}

// Images returns the images of the list, without uploads of disks that are none.
func (l *PulledList) Images() []Pulled {
	return slices.DeleteFunc(slices.Clone(l.Items), func(p Pulled) bool { return p.Image == "" })
}

// Deleter is what Remove needs of a client.
type Deleter interface {
	DeleteObject(ctx context.Context, group, namespace, resource, name string, options metav1.DeleteOptions) error
}

// Remove deletes the claim of an image, if it is the one with the UID. With dryRun the server says what it would do.
func Remove(ctx context.Context, d Deleter, namespace, claim string, uid types.UID, dryRun bool) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := d.DeleteObject(ctx, "/api/v1", namespace, client.Claims, claim, options); err != nil {
		return fmt.Errorf("delete claim %s/%s: %w", namespace, claim, err)
	}
	return nil
}

// Labels returns the labels of a claim with the image.
func (i *Image) Labels() map[string]string {
	out := map[string]string{uploads.LabelImage: i.Name, uploads.LabelImageVersion: i.Version}
	for label, value := range map[string]string{
		uploads.LabelImageUser: i.User, uploads.LabelInstancetype: i.Instancetype,
		uploads.LabelPreference: i.Preference,
	} {
		if value != "" {
			out[label] = value
		}
	}
	return out
}

// FindAlias is as Find, and knows the aliases of versions that the program's own catalogue has.
func (l *PulledList) FindAlias(ref string) (*Pulled, error) {
	out, err := l.Find(ref)
	if err == nil || !strings.Contains(ref, "/") {
		return out, err
	}
	known, unknown := Builtin().Find(ref)
	if unknown != nil {
		return nil, err
	}
	if out, missing := l.Find(known.Ref()); missing == nil {
		return out, nil
	}
	return nil, err
}

// Find returns the image of a reference: of NAME alone the one that was made last; a DataSource only where no claim has
// one, and one without a disk only where there is no other, sooner one that is being pulled.
func (l *PulledList) Find(ref string) (*Pulled, error) {
	name, version, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	var out *Pulled
	for i := range l.Items {
		p := &l.Items[i]
		of, has, _ := strings.Cut(p.Image, "/")
		if of != name || version != "" && has != version {
			continue
		}
		if out == nil || p.before(out) {
			out = p
		}
	}
	if out == nil {
		return nil, fmt.Errorf("image %s %w", ref, action.ErrNotFound)
	}
	return out, nil
}

// before reports whether p is meant rather than other.
func (p *Pulled) before(other *Pulled) bool {
	if lacks := p.lacks(); lacks != other.lacks() {
		return lacks < other.lacks()
	}
	if alone := p.Claim == ""; alone != (other.Claim == "") {
		return !alone
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

// lacks returns how far an image is from having a disk: 0 with one, 1 with one that comes.
func (p *Pulled) lacks() int {
	switch p.Phase {
	case PhaseIncomplete, PhaseNotReady:
		return 2
	case PhasePulling, PhaseUploading:
		return 1
	}
	return 0
}

// OnClaims returns the images of the list that are on claims.
func (l *PulledList) OnClaims() *PulledList {
	out := *l
	out.Items = slices.DeleteFunc(slices.Clone(l.Items), func(p Pulled) bool { return p.Claim == "" })
	return &out
}
