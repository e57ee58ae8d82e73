//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const uploadID = "0123456789abcdef"

// uploadSum is the checksum that an upload's pod says.
var uploadSum = strings.Repeat("a", uploads.SumSize)

// requestUpload asks for an upload to claim disk, as virt-api does.
func (t *test) requestUpload(request uploads.Request) {
	t.Helper()
	claim := t.uploadClaim()
	before := claim.DeepCopy()
	if request.Since.IsZero() {
		request.Since = time.Now()
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, uploads.AnnotationRequest, uploads.Encode(request))
	delete(claim.Annotations, uploads.AnnotationState)
	t.must(cluster.Client.Patch(t.ctx, claim, client.MergeFrom(before)))
}

func (t *test) uploadClaim() *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	t.must(cluster.Client.Get(t.ctx, t.key("disk"), claim))
	return claim
}

// uploadPod waits for the pod of an upload to claim disk, and runs it.
func (t *test) uploadPod(id string) *corev1.Pod {
	t.Helper()
	claim, pod := t.uploadClaim(), &corev1.Pod{}
	t.eventually("the upload's pod", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(uploads.PodName(claim.UID, id)), pod)
		return err == nil, client.IgnoreNotFound(err)
	})
	if !metav1.IsControlledBy(pod, claim) || !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	}) {
		t.Errorf("owners %+v, volumes %+v", pod.OwnerReferences, pod.Spec.Volumes)
	}
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodRunning }))
	return pod
}

// terminate ends the container of an upload's pod with a termination message.
func (t *test) terminate(pod *corev1.Pod, phase corev1.PodPhase, code int32, message string) {
	t.Helper()
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = phase
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: names.ContainerCompute,
			State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
			},
		}}
	}))
}

// waitUpload waits until claim disk says a phase of its upload.
func (t *test) waitUpload(phase uploads.Phase) (*corev1.PersistentVolumeClaim, *uploads.State) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	var state *uploads.State
	t.eventually(fmt.Sprintf("upload %s", phase), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("disk"), claim)
		state = uploads.StateOf(claim.Annotations)
		return state != nil && state.Phase == phase, err
	})
	if under := uploads.RequestOf(claim.Annotations) != nil; under == phase.Final() {
		t.Errorf("%s, and the request is there: %t", phase, under)
	}
	return claim, state
}

// An upload has a pod that says how it ended. The claim then has that, and the labels of the request if the disk is
// there; the request and the pod go. So it may be asked for again.
func TestUpload(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("disk", "none")
	request := uploads.Request{ID: uploadID, Size: 5, Labels: map[string]string{uploads.LabelInstancetype: "small"}}
	for _, test := range []struct {
		phase   corev1.PodPhase
		code    int32
		state   uploads.State
		label   string
		message string
		intact  bool
	}{
		{
			phase: corev1.PodFailed, code: 1, message: "it has a backing file", intact: true,
			state: uploads.State{Phase: uploads.Failed, Message: "it has a backing file", Intact: true},
		},
		// What it says counts for nothing when its exit code says else.
		{
			phase: corev1.PodFailed, code: 137, message: "ended with code 137",
			state: uploads.State{Phase: uploads.Succeeded, Received: 5, Size: 5, SHA256: uploadSum},
		},
		{
			phase: corev1.PodSucceeded, label: "small",
			state: uploads.State{Phase: uploads.Succeeded, Received: 5, Size: 5, SHA256: uploadSum},
		},
	} {
		t.requestUpload(request)
		pod := t.uploadPod(uploadID)
		t.terminate(pod, test.phase, test.code, uploads.Encode(test.state))
		want := uploads.Failed
		if test.phase == corev1.PodSucceeded {
			want = uploads.Succeeded
		}
		claim, state := t.waitUpload(want)
		if state.ID != uploadID || state.Size != 5 || state.Intact != test.intact || state.Ended.IsZero() ||
			!strings.Contains(state.Message, test.message) || claim.Labels[uploads.LabelInstancetype] != test.label ||
			claim.Labels["kept"] != "yes" || state.SHA256 != "" != (want == uploads.Succeeded) {
			t.Errorf("code %d: %+v, labels %v", test.code, state, claim.Labels)
		}
		t.endPod(pod)
	}
}

// A cancelled upload ends once its pod is gone; one of another image waits for that, too.
func TestUploadCancelled(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("disk", "none")
	t.requestUpload(uploads.Request{ID: uploadID, Size: 5})
	pod := t.uploadPod(uploadID)
	t.requestUpload(uploads.Request{ID: uploadID, Size: 5, Cancel: true})
	t.waitDeletion(pod)
	if state := uploads.StateOf(t.uploadClaim().Annotations); state != nil {
		t.Errorf("its pod may write, and the claim says %s", state.Phase)
	}
	t.endPod(pod)
	if _, state := t.waitUpload(uploads.Cancelled); state.Message != "the upload was cancelled" || state.Intact {
		t.Errorf("%+v", state)
	}

	// An upload that is replaced: someone wrote the annotation without virt-api.
	const other = "fedcba9876543210"
	t.requestUpload(uploads.Request{ID: uploadID, Size: 5})
	pod = t.uploadPod(uploadID)
	t.requestUpload(uploads.Request{ID: other, Size: 5})
	t.waitDeletion(pod)
	err := cluster.Client.Get(t.ctx, t.key(uploads.PodName(t.uploadClaim().UID, other)), &corev1.Pod{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("two pods have the claim: %v", err)
	}
	t.endPod(pod)
	t.uploadPod(other)
}

// waitDeletion waits until a pod is being deleted, which no kubelet ends yet.
func (t *test) waitDeletion(pod *corev1.Pod) {
	t.Helper()
	t.eventually("deletion of pod "+pod.Name, func() (bool, error) {
		t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(pod), pod))
		return pod.DeletionTimestamp != nil, nil
	})
}

// An upload whose pod is refused says why, goes on once a pod may be made, and ends when none could for an hour.
func TestUploadRefused(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("disk", "none")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: quantity("0")}},
	}
	t.must(cluster.Client.Create(t.ctx, quota))
	t.allow(quota, corev1.ResourcePods, "0", "0")
	request := uploads.Request{ID: uploadID, Size: 5}
	t.requestUpload(request)
	_, state := t.waitUpload(uploads.Pending)
	if !strings.Contains(state.Message, "refused") || !strings.Contains(state.Message, "exceeded quota") {
		t.Errorf("%+v", state)
	}
	t.must(cluster.Client.Delete(t.ctx, quota))
	pod := t.uploadPod(uploadID)
	t.requestUpload(uploads.Request{ID: uploadID, Size: 5, Cancel: true})
	t.endPod(pod)
	t.waitUpload(uploads.Cancelled)

	request.Since = time.Now().Add(-2 * time.Hour)
	t.requestUpload(request)
	if _, state := t.waitUpload(uploads.Failed); !strings.Contains(state.Message, "has expired") || !state.Intact {
		t.Errorf("%+v", state)
	}
}

// The upload to a claim that is being deleted ends with its pod, which the claim waits for.
func TestUploadClaimDeleted(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("disk", "none")
	t.requestUpload(uploads.Request{ID: uploadID, Size: 5})
	pod, claim := t.uploadPod(uploadID), t.uploadClaim()
	// Kubernetes has a finalizer on claims that pods use.
	t.must(cluster.Client.Patch(t.ctx, claim, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["test.virtkit.io/in-use"]}}`))))
	t.must(cluster.Client.Delete(t.ctx, claim))
	t.endPod(pod)
	t.must(cluster.Client.Patch(t.ctx, claim, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))))
	t.waitGone(claim)
}
