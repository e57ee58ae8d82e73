package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// evictions answers evictions of launcher pods. It is the one webhook that changes something, and no more than
// that a VMI is marked as one that is to leave the node it is on: the path is open, so that anybody who reaches
// virt-api can do as much as ask for a live migration.
type evictions struct {
	machines *machines
	// strategy is the installation's, empty for the default.
	strategy func() v1.EvictionStrategy
}

// admit denies the eviction of a guest that is to be moved instead, or that is not to be shut down.
func (e *evictions) admit(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Create || request.Resource.Resource != "pods" ||
		request.SubResource != "eviction" {
		return allowed(), nil
	}
	dryRun := dryRunOf(request)
	var verdict eviction.Verdict
	var err error
	for range attempts {
		if verdict, err = e.answer(ctx, request.Namespace, request.Name, dryRun); !apierrors.IsConflict(err) {
			break
		}
	}
	switch {
	case err != nil:
		// Whoever evicts tries again.
		return tooManyRequests(fmt.Sprintf("virtkit could not decide on the eviction of the VMI's pod: %v", err)), nil
	case verdict.Allow:
		return allowed(), nil
	}
	return tooManyRequests(verdict.Message), nil
}

// answer decides on a pod, and marks its VMI where that is the answer.
func (e *evictions) answer(ctx context.Context, namespace, name string, dryRun []string) (eviction.Verdict, error) {
	pod, err := e.pod(ctx, namespace, name)
	if pod == nil || err != nil {
		return eviction.Verdict{Allow: true}, err
	}
	subject := eviction.Pod{UID: pod.UID, Node: pod.Spec.NodeName}
	owner := life.InstanceOf(pod)
	if of := life.LauncherOf(pod); of != nil {
		launcher, err := e.pod(ctx, namespace, of.Name)
		if launcher == nil || err != nil || launcher.UID != of.UID {
			return eviction.Verdict{Allow: true}, err
		}
		subject.Attachment, owner = true, life.InstanceOf(launcher)
	}
	if owner == nil {
		return eviction.Verdict{Allow: true}, nil
	}
	vmi, err := e.machines.vmi(ctx, namespace, owner.Name)
	if apierrors.IsNotFound(err) || err == nil && vmi.UID != owner.UID {
		return eviction.Verdict{Allow: true}, nil
	}
	if err != nil {
		return eviction.Verdict{}, err
	}
	verdict := eviction.Decide(vmi, subject, e.strategy())
	if verdict.Mark {
		patch := map[string]any{"status": map[string]any{"evacuationNodeName": vmi.Status.NodeName}}
		if err := e.machines.patch(ctx, virtualMachineInstances, vmi, "status", patch, dryRun); err != nil {
			return eviction.Verdict{}, err
		}
	}
	return verdict, nil
}

// pod reads one that still runs, nil when there is none or it is over.
func (e *evictions) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := e.machines.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	if !life.PodStaying(pod) {
		return nil, nil
	}
	return pod, nil
}

// dryRunOf returns a request's dryRun: its own, or the one in the options of the eviction, which the API server does
// not show as its own.
func dryRunOf(request *admissionv1.AdmissionRequest) []string {
	all := []string{metav1.DryRunAll}
	if request.DryRun != nil && *request.DryRun {
		return all
	}
	asked := policyv1.Eviction{}
	if err := json.Unmarshal(request.Object.Raw, &asked); err == nil && asked.DeleteOptions != nil &&
		slices.Contains(asked.DeleteOptions.DryRun, metav1.DryRunAll) {
		return all
	}
	return nil
}

// tooManyRequests returns the answer after which kubectl drain tries again.
func tooManyRequests(message string) *admissionv1.AdmissionResponse {
	return denied(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message, nil)
}
