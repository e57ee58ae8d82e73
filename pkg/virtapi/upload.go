package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// persistentVolumeClaims is the resource that uploads are a subresource of.
const persistentVolumeClaims = "persistentvolumeclaims"

// requestUpload asks for an upload to a claim, goes on with the one of the same image, or cancels it. virt-controller
// makes the pod.
func (q *requests) requestUpload(r *restful.Request, namespace, name string) error {
	request := uploads.Request{}
	if err := decode(r.Request, &request); err != nil {
		return err
	}
	if err := request.Check(); err != nil {
		return badRequest(err.Error())
	}
	request.Since = time.Now().UTC().Truncate(time.Second)
	ctx, client := r.Request.Context(), q.machines.core.CoreV1()
	return retried(func() error {
		claim, err := client.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wanted, err := mayUpload(claim, request)
		if err != nil || wanted == nil {
			return err
		}
		if !request.Cancel {
			pods, err := client.Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("find who uses claim %s/%s: %w", namespace, name, err)
			}
			if err := unused(claim, pods.Items); err != nil {
				return err
			}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": claim.ResourceVersion,
			"annotations": map[string]any{
				uploads.AnnotationRequest: uploads.Encode(wanted), uploads.AnnotationState: nil,
			},
		}})
		if err != nil {
			return err
		}
		_, err = client.PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "virt-api"})
		if apierrors.IsConflict(err) {
			return &conflictingWriteError{err}
		}
		return err
	})
}

func conflictClaim(claim *corev1.PersistentVolumeClaim, text string) error {
	return conflictWith("PersistentVolumeClaim", persistentVolumeClaims, claim.Namespace, claim.Name, ": "+text)
}

// mayUpload returns the request that a claim is to have, nil when it has it already, or says why there can be none.
func mayUpload(claim *corev1.PersistentVolumeClaim, request uploads.Request) (*uploads.Request, error) {
	current, state := uploads.RequestOf(claim.Annotations), uploads.StateOf(claim.Annotations)
	switch {
	case request.Cancel && (current == nil || current.ID != request.ID):
		return nil, conflictClaim(claim, "that image is not being uploaded")
	case request.Cancel && current.Cancel:
		return nil, nil
	case request.Cancel:
		cancelled := *current
		cancelled.Cancel = true
		return &cancelled, nil
	case claim.DeletionTimestamp != nil:
		return nil, conflictClaim(claim, "it is being deleted")
	case current != nil && current.Cancel:
		return nil, conflictClaim(claim, "an upload to it is being cancelled; try again")
	case current != nil && current.ID == request.ID:
		return nil, nil
	case current != nil:
		return nil, conflictClaim(claim, fmt.Sprintf("another image is being uploaded to it since %s; wait, or end "+
			"that with `virtctl image-upload pvc %s --cancel`", current.Since.Format(time.RFC3339), claim.Name))
	case state != nil && state.Phase == uploads.Succeeded && state.ID == request.ID:
		// A guest may have written to it since.
		return nil, conflictClaim(claim, fmt.Sprintf("it has had this image since %s: the upload was complete",
			state.Ended.Format(time.RFC3339)))
	case state != nil && state.Phase == uploads.Succeeded:
		return nil, conflictClaim(claim,
			"it has an uploaded image already; upload to another claim, or delete this one")
	case claims.Owned(claim):
		return nil, conflictClaim(claim, "a DataVolume fills it; upload to another claim")
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, conflictClaim(claim, "its volume is lost; upload to another claim")
	}
	request.Incomplete = state != nil && state.Phase.Final() && !state.Intact
	return &request, nil
}

// unused fails when a pod has the claim.
func unused(claim *corev1.PersistentVolumeClaim, pods []corev1.Pod) error {
	for i := range pods {
		pod := &pods[i]
		if metav1.IsControlledBy(pod, claim) || !claims.UsedBy(pod, claim.Name) {
			continue
		}
		user := "pod " + pod.Name
		if owner := life.InstanceOf(pod); owner != nil {
			user = "VirtualMachineInstance " + owner.Name
		}
		return conflictClaim(claim, "it is used by "+user+"; stop that first, or upload to another claim")
	}
	return nil
}

// upload answers with the state of the upload to a claim, as JSON of uploads.State, or with a websocket over which its
// bytes go to the pod.
func (q *requests) upload(r *restful.Request, w *restful.Response) error {
	ctx, namespace, name := r.Request.Context(), r.PathParameter("namespace"), r.PathParameter("name")
	claim, err := q.machines.core.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	request := uploads.RequestOf(claim.Annotations)
	state := uploads.StateOf(claim.Annotations)
	if request == nil {
		switch {
		case stream.IsUpgrade(r.Request):
			return conflictClaim(claim, "no image is being uploaded to it")
		case state == nil:
			return apierrors.NewNotFound(schema.GroupResource{Resource: persistentVolumeClaims + "/" +
				uploads.Subresource}, name)
		}
		return answer(w, state)
	}
	if state == nil {
		state = &uploads.State{Phase: uploads.Pending}
	}
	state.ID = request.ID
	if request.ContainerDisk == nil { // else the pod alone knows it
		state.Size = request.Size
	}
	pod, err := q.uploadPod(ctx, claim, request)
	if err != nil {
		return err
	}
	if pod == nil {
		if stream.IsUpgrade(r.Request) {
			return stream.NewNotRunning("the upload's pod does not run yet: " + state.Message)
		}
		return answer(w, state)
	}
	query := url.Values{"uid": {string(pod.UID)}}
	if stream.IsUpgrade(r.Request) {
		query.Set("session", r.QueryParameter("session"))
		target, err := q.uploadTarget(pod, "data", query)
		if err != nil {
			return err
		}
		user := ""
		if info, ok := apirequest.UserFrom(ctx); ok {
			user = info.GetName()
		}
		return q.streams.splice(w.ResponseWriter, r.Request, target, pod.Spec.NodeName, user)
	}
	return answer(w, q.askUpload(ctx, pod, query, state))
}

// uploadPod returns the pod that takes an upload; nil while there is none that runs.
func (q *requests) uploadPod(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, request *uploads.Request,
) (*corev1.Pod, error) {
	name := uploads.PodName(claim.UID, request.ID)
	pod, err := q.machines.core.CoreV1().Pods(claim.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !metav1.IsControlledBy(pod, claim):
		return nil, nil
	}
	return pod, nil
}

func (q *requests) uploadTarget(pod *corev1.Pod, what string, query url.Values) (*url.URL, error) {
	host, err := q.nodes.handler(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	return &url.URL{
		Scheme: "https", Host: host, RawQuery: query.Encode(),
		Path: stream.HandlerPath(stream.OfUpload, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, what),
	}, nil
}

// askUpload returns the pod's report on its upload, or known with the reason why the pod reports nothing.
func (q *requests) askUpload(
	ctx context.Context, pod *corev1.Pod, query url.Values, known *uploads.State,
) *uploads.State {
	target, err := q.uploadTarget(pod, "state", query)
	if err == nil {
		var body []byte
		body, err = call(ctx, q.handlers.of(pod.Spec.NodeName), "GET", target, pod.Spec.NodeName)
		if state := uploads.ParseState(body); err == nil && state != nil {
			if state.Phase.Final() {
				state.Phase = uploads.Converting // until the claim says so, too
			}
			return state
		}
	}
	if err != nil && known.Message == "" {
		known.Message = uploads.OneLine(err.Error())
	}
	return known
}
