package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Options of an upload.
type Options struct {
	Namespace, Name string
	// DataVolume has a DataVolume made, of which CDI makes the claim, and not a claim.
	DataVolume bool
	// Create is the claim to be; nil needs one to be there. Of a DataVolume CDI chooses the modes that are empty.
	Create *upload.Claim
	// Replace says that the disk of a claim may be replaced that was not made for an upload.
	Replace bool
	// Archive is of a tar archive, whose files become the claim's.
	Archive bool
	// Labels are given to the DataVolume or claim, also to one that is there.
	Labels map[string]string
	// ForceBind has a claim bound whose class would wait for a pod.
	ForceBind bool
	// Image is what is sent, and Size how many bytes it has.
	Image io.ReaderAt
	Size  int64
	// Proxy is where it is sent.
	Proxy *Proxy
	// Retries is how many times it is sent again after a failure that may pass.
	Retries uint
	// Patience is how long to wait for CDI's pod, and for a proxy that takes nothing.
	Patience time.Duration
	// Poll is how often CDI's progress is looked at.
	Poll time.Duration
	// Show, which may be nil, is told how many bytes were sent; from the start again with each try.
	Show func(sent int64)
	// Waits, which may be nil, is told why CDI does not take the image after a while; once.
	Waits func(why string)
	// Again, which may be nil, is told why the image is sent again.
	Again func(why error)
}

// Stage is how far an upload has come when it ends.
type Stage int

// The stages.
const (
	// Nothing was made.
	Nothing Stage = iota
	// Asked is a claim that was there, for which CDI was asked to prepare an upload.
	Asked
	// Made is a DataVolume or claim that was made for the image and has it not.
	Made
	// Sent is an image that CDI has, and writes.
	Sent
	// Done is an image that is on the claim. With an error, the claim still says what an upload before it has left.
	Done
)

// uploading is one upload.
type uploading struct {
	Options
	api   API
	stage Stage
	// restarts is how often CDI's pod had begun anew before the image was sent the last time.
	restarts string
	// reached says that the proxy has answered; whole that every byte was sent at least once; busy that CDI's pod,
	// which was ready, did not begin to take the last try.
	reached, whole, busy bool
	// failed says that a try failed while the image was sent, and doubtful that one had when the last one began.
	failed, doubtful bool
}

// succeeded is the phase of CDI's pod when it has written an image.
const succeeded = string(corev1.PodSucceeded)

// Upload makes what the image goes to, unless that is there, sends the image, and waits until CDI has written it.
// Errors, beside those of the API server: *StatusError, *CertificateError, *StalledError, action.ErrTimeout.
func Upload(ctx context.Context, api API, o Options) (Stage, error) {
	u := &uploading{Options: o, api: api}
	err := u.prepare(ctx)
	if err == nil {
		err = u.waitReady(ctx)
	}
	if err == nil {
		err = u.sendAndWait(ctx)
	}
	if err == nil {
		u.stage = Done
		err = u.forget(ctx)
	}
	if err != nil {
		return u.stage, fmt.Errorf("upload to %s: %w", u.target(), err)
	}
	return Done, nil
}

// sendAndWait sends the image and waits until it is written. CDI notes late that its pod has begun anew. So where that
// may have been in a try which had failed already, the image is sent once more: a pod that has it refuses it.
func (u *uploading) sendAndWait(ctx context.Context) error {
	before := u.stage
	for doubts := 1; ; doubts-- {
		if err := u.send(ctx); err != nil {
			return err
		}
		u.stage = Sent
		err := u.waitWritten(ctx)
		if !u.doubtful || doubts == 0 || !errors.Is(err, errUnused) {
			return err
		}
		u.stage = before
		if u.Again != nil {
			u.Again(err)
		}
	}
}

// target is what the image goes to, for messages.
func (u *uploading) target() string {
	kind := "claim"
	if u.DataVolume {
		kind = "DataVolume"
	}
	return kind + " " + u.Namespace + "/" + u.Name
}

// read returns the claim and, if the upload is to one, the DataVolume; nil for what is not there.
func (u *uploading) read(ctx context.Context) (*corev1.PersistentVolumeClaim, *cdiv1.DataVolume, error) {
	claim, err := u.claim(ctx, u.Name)
	if err != nil || !u.DataVolume {
		return claim, nil, err
	}
	dv := &cdiv1.DataVolume{}
	switch err := u.api.Read(ctx, path(Group, u.Namespace, DataVolumes, u.Name), nil, dv); {
	case apierrors.IsNotFound(err):
		return claim, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	return claim, dv, nil
}

func (u *uploading) claim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	switch err := u.api.Read(ctx, path("/api/v1", u.Namespace, client.Claims, name), nil, claim); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s: %w", u.Namespace, name, err)
	}
	return claim, nil
}

// prepare makes what the image goes to, or looks whether what is there can take it.
func (u *uploading) prepare(ctx context.Context) error {
	claim, dv, err := u.read(ctx)
	switch {
	case err != nil:
		return err
	case claim == nil && dv == nil && u.Replace:
		return fmt.Errorf("it is %w", action.ErrNotFound)
	case claim == nil && dv == nil && u.Create == nil:
		return fmt.Errorf("it is %w; give --size to have it made", action.ErrNotFound)
	case claim == nil && dv == nil:
		if err := u.make(ctx); err != nil {
			return err
		}
		u.stage = Made
		return nil
	case u.DataVolume && dv == nil:
		return fmt.Errorf("claim %s/%s is there already, and no DataVolume has made it; choose another name, or "+
			"upload to it as pvc %s with --no-create", u.Namespace, u.Name, u.Name)
	case dv != nil && (dv.Spec.Source == nil || dv.Spec.Source.Upload == nil):
		return errors.New("it is not filled by an upload; choose another name")
	}
	if err := u.check(ctx, claim, dv); err != nil {
		return err
	}
	return u.amend(ctx, claim, dv)
}

// errHasImage is a target that was uploaded to before.
var errHasImage = errors.New("it has an image already; choose another name, or delete it")

// check looks whether what is there can take an image, and has CDI prepare a claim that was not made for one.
func (u *uploading) check(ctx context.Context, claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) error {
	if dv != nil && dv.Status.Phase == cdiv1.Succeeded {
		return errHasImage
	}
	if claim != nil && dv != nil && dv.Annotations[annotationUsePopulator] == "true" {
		if claim.Status.Phase == corev1.ClaimBound {
			return errHasImage // CDI binds it when it has one
		}
		prime := claim.Annotations[annotationPrime] // CDI's own claim, to which the image goes at first
		if prime == "" {
			return nil
		}
		var err error
		if claim, err = u.claim(ctx, prime); err != nil {
			return err
		}
	}
	if claim == nil {
		return nil // CDI makes it
	}
	_, meant := claim.Annotations[AnnotationTarget]
	switch {
	case claim.Annotations[annotationPodPhase] == succeeded:
		return errHasImage
	case u.Archive && meant && claim.Annotations[annotationContentType] != string(cdiv1.DataVolumeArchive):
		return errors.New("it is for an image, and takes no archive; choose another name")
	case u.DataVolume:
		return nil
	case uploads.RequestOf(claim.Annotations) != nil:
		return errors.New("an image is being uploaded to it through the API server; wait, or end that with --cancel")
	case uploads.StateOf(claim.Annotations) != nil && len(uploads.Awaiting(claim.Annotations)) == 0 && !u.Replace:
		return errors.New("an image was uploaded to it through the API server, and its disk would be replaced; " +
			"choose another name, or give --no-create to say that you mean it")
	case !meant && !u.Replace:
		return errors.New("it is there already, and was not made for an upload, or has been used since: its disk, " +
			"which may be a VM's, would be replaced; choose another name, or give --no-create to say that you mean it")
	}
	if err := u.unused(ctx, claim); err != nil || meant {
		return err
	}
	annotations := u.annotations()
	annotations[annotationPodRestarts] = nil // of a pod that it had before: CDI counts no less than is there
	annotations[annotationPodReady] = nil
	if err := u.change(ctx, "/api/v1", client.Claims, map[string]any{"annotations": annotations}); err != nil {
		return fmt.Errorf("have CDI prepare it: %w", err)
	}
	u.stage = Asked
	return nil
}

// amend gives what is there what was asked for beside the image: labels, and to be bound at once. CDI looks at the
// claim, and copies both of a DataVolume to the claim that it makes.
func (u *uploading) amend(ctx context.Context, claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) error {
	bind := u.ForceBind
	if claim != nil {
		bind = bind && claim.Status.Phase != corev1.ClaimBound
		if err := u.give(ctx, "/api/v1", client.Claims, claim, bind); err != nil {
			return fmt.Errorf("change its claim: %w", err)
		}
	}
	if dv != nil {
		if err := u.give(ctx, Group, DataVolumes, dv, bind); err != nil {
			return fmt.Errorf("change it: %w", err)
		}
	}
	return nil
}

// give gives the claim or the DataVolume what it lacks.
func (u *uploading) give(ctx context.Context, group, resource string, there metav1.Object, bind bool) error {
	metadata := map[string]any{}
	if _, asked := there.GetAnnotations()[claims.BindAtOnce]; bind && !asked {
		metadata["annotations"] = map[string]any{claims.BindAtOnce: ""}
	}
	for key, value := range u.Labels {
		if there.GetLabels()[key] != value {
			metadata["labels"] = values(u.Labels)
		}
	}
	if len(metadata) == 0 {
		return nil
	}
	return u.change(ctx, group, resource, metadata)
}

// change patches the metadata of the claim or the DataVolume.
func (u *uploading) change(ctx context.Context, group, resource string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = u.api.MergeObject(ctx, group, u.Namespace, resource, u.Name, "", patch, false)
	return err
}

// unused refuses a claim that a pod uses, other than CDI's: its disk would change below a guest. Pods that may not be
// listed are left to CDI, which looks at them when it makes its own.
func (u *uploading) unused(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	var pods corev1.PodList
	err := u.api.Read(ctx, "/api/v1/namespaces/"+u.Namespace+"/pods", nil, &pods)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the pods that may use it: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if claims.UsedBy(pod, u.Name) && !metav1.IsControlledBy(pod, claim) &&
			pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("pod %s uses it; stop the VM or delete the pod first", pod.Name)
		}
	}
	return nil
}

// annotations returns those of a claim to which an image is to be uploaded.
func (u *uploading) annotations() map[string]any {
	return map[string]any{AnnotationTarget: "", annotationContentType: u.contentType()}
}

func (u *uploading) contentType() string {
	if u.Archive {
		return string(cdiv1.DataVolumeArchive)
	}
	return string(cdiv1.DataVolumeKubeVirt)
}

// make makes the DataVolume or claim.
func (u *uploading) make(ctx context.Context) error {
	storage := map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": u.Create.Size}}}
	if u.Create.StorageClass != "" {
		storage["storageClassName"] = u.Create.StorageClass
	}
	if u.Create.AccessMode != "" {
		storage["accessModes"] = []any{u.Create.AccessMode}
	}
	if u.Create.VolumeMode != "" {
		storage["volumeMode"] = u.Create.VolumeMode
	}
	metadata := map[string]any{"name": u.Name, "namespace": u.Namespace}
	if len(u.Labels) > 0 {
		metadata["labels"] = values(u.Labels)
	}
	group, resource := "/api/v1", client.Claims
	object := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": storage,
	}
	annotations := u.annotations()
	if u.DataVolume {
		group, resource = Group, DataVolumes
		annotations = map[string]any{}
		object["apiVersion"], object["kind"] = cdiv1.SchemeGroupVersion.String(), "DataVolume"
		object["spec"] = map[string]any{
			"source": map[string]any{"upload": map[string]any{}}, "contentType": u.contentType(), "storage": storage,
		}
	}
	if u.ForceBind {
		annotations[claims.BindAtOnce] = ""
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	_, err := u.api.CreateObject(ctx, group, u.Namespace, resource, &unstructured.Unstructured{Object: object}, false)
	if err != nil {
		return fmt.Errorf("make it: %w", err)
	}
	return nil
}
