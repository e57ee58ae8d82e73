package exportcontroller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// serve sees that the pod runs, and says where.
func (v *View) serve(step *Step) {
	for i := range v.Claims {
		step.Volumes = append(step.Volumes, v.Claims[i].Volume)
	}
	slices.SortFunc(step.Volumes, func(a, b exports.Volume) int { return cmp.Compare(a.Name, b.Name) })
	status := step.Status
	if status.TokenSecretRef == nil {
		step.CreateToken = newSecret(v.Export, exports.TokenSecret(v.Export),
			map[string][]byte{names.ExportTokenKey: []byte(v.Token)})
		status.TokenSecretRef = &step.CreateToken.Name
	}
	identity := identityOf(v.Service)
	switch {
	case v.Service == nil:
		step.CreateService, step.CreateIdentity = Service(v.Export), true
	case !v.ours(v.Service):
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonRefused, "Service %s is there and not of this export: delete it, or make an export "+
			"of another name", v.Service.Name)
		return
	case v.Service.DeletionTimestamp != nil:
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonInitializing, "the Service is being deleted")
		return
	case identity == nil:
		step.CreateIdentity = true
	}
	status.ServiceName = exports.Name(v.Export.Name)
	if identity == nil {
		v.wait(step, exports.ReasonInitializing, "")
		return
	}
	v.servePod(step, identity)
}

func (v *View) servePod(step *Step, identity *identity) {
	status, pod := step.Status, v.Pod
	switch {
	case pod == nil:
		v.planPod(step, identity)
		step.Events = append(step.Events, Event{
			corev1.EventTypeNormal, eventPodCreated,
			fmt.Sprintf("Created exporter pod %s/%s", v.Export.Namespace, exports.Name(v.Export.Name)),
		})
		v.wait(step, exports.ReasonPodPending, "")
	case !v.ours(pod):
		step.RequeueAfter = min(step.RequeueAfter, again)
		v.wait(step, exports.ReasonRefused, "Pod %s is there and not of this export: delete it, or make an export of "+
			"another name", pod.Name)
	case pod.DeletionTimestamp != nil:
		v.wait(step, exports.ReasonPodPending, "the pod before is ending")
	case pod.Status.Phase == corev1.PodSucceeded:
		status.Phase = v1beta1.Terminated
		v.wait(step, exports.ReasonPodCompleted, "")
	case pod.Status.Phase == corev1.PodFailed:
		// It was evicted, or its node is gone.
		step.DeletePod = true
		reason := strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
		step.Events = append(step.Events, Event{
			corev1.EventTypeWarning, eventPodEnded,
			fmt.Sprintf("Exporter pod %s/%s has failed: %s", pod.Namespace, pod.Name, reason),
		})
		v.wait(step, exports.ReasonPodPending, "the pod has failed (%s), another one is made", reason)
	case isReady(pod):
		status.Phase = v1beta1.Ready
		v.set(status, v1beta1.ConditionReady, corev1.ConditionTrue, exports.ReasonPodReady, "")
		status.Links = &v1beta1.VirtualMachineExportLinks{Internal: exports.Links(
			exports.Host(v.Export.Namespace, v.Export.Name), identity.Certificate, step.Volumes, v.VM != nil)}
		switch {
		case v.Unsettled:
			if v.Export.Status != nil && v.Export.Status.Links != nil {
				status.Links.External = v.Export.Status.Links.External
				v.set(status, v1beta1.ConditionReady, corev1.ConditionTrue, exports.ReasonPodReady, v.saidOfLink())
			}
			step.RequeueAfter = min(step.RequeueAfter, frame.CatchUp)
		case v.Entrance != nil:
			status.Links.External = exports.ExternalLinks(
				exports.External(v.Entrance.Host, v.Export.Namespace, v.Export.Name), v.Entrance.Certificate,
				step.Volumes, v.VM != nil && knowsOutside(pod))
			v.warn(step, v.Entrance.Trouble)
			// No event says that the certificate was made, or renewed.
			step.RequeueAfter = min(step.RequeueAfter, watchful)
		}
	default:
		v.wait(step, exports.ReasonPodPending, "%s", v.waits())
	}
}

// warn records what is wrong with the link of an export that is ready, in an event when the condition does not say it
// yet.
func (v *View) warn(step *Step, trouble string) {
	if trouble == "" {
		return
	}
	v.set(step.Status, v1beta1.ConditionReady, corev1.ConditionTrue, exports.ReasonPodReady, trouble)
	if v.saidOfLink() != trouble {
		step.Events = append(step.Events, Event{corev1.EventTypeWarning, eventCertificate, trouble})
	}
}

// saidOfLink returns what an export that was ready says is wrong with its link.
func (v *View) saidOfLink() string {
	if v.Export.Status == nil {
		return ""
	}
	ready := conditions.With(v.Export.Status.Conditions, v1beta1.ConditionReady, corev1.ConditionTrue)
	if ready == nil {
		return ""
	}
	return ready.Message
}

// planPod plans the pod, and the Secret of its manifests before it.
func (v *View) planPod(step *Step, identity *identity) {
	facts := v.Facts
	facts.Made = v.made()
	facts.Identity, facts.Token = identity.Secret, *step.Status.TokenSecretRef
	if v.VM != nil {
		asJSON, asYAML, err := Manifests(*v, identity.Certificate)
		if err != nil {
			step.Failed = err
			return
		}
		// The same content has the same name, so that a pod that is refused again and again leaves one.
		sum := sha256.Sum256(append([]byte(v.Export.UID), asJSON...))
		facts.Manifests = exports.Name(v.Export.Name) + "-manifests-" + hex.EncodeToString(sum[:5])
		step.CreateManifests = newSecret(v.Export, facts.Manifests, map[string][]byte{
			names.ExportManifestsJSON: asJSON, names.ExportManifestsYAML: asYAML,
		})
	}
	step.CreatePod = Pod(v.Export, step.Volumes, facts)
}

// knowsOutside reports whether the server of a pod has manifests for clients outside of the cluster: it is told its
// host for them. That of an export from before external links has none, and 404 would be its answer.
func knowsOutside(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, hostFlag) })
	})
}

func isReady(pod *corev1.Pod) bool {
	return conditions.With(pod.Status.Conditions, corev1.PodReady, corev1.ConditionTrue) != nil
}

// waits returns why the pod does not serve yet, or "" when no reason is known.
func (v *View) waits() string {
	scheduled := conditions.Find(v.Pod.Status.Conditions, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionTrue {
		if scheduled == nil || scheduled.Message == "" {
			return ""
		}
		return "the pod waits for a node: " + scheduled.Message
	}
	for i := range v.Pod.Status.ContainerStatuses {
		state := &v.Pod.Status.ContainerStatuses[i].State
		switch {
		case state.Waiting != nil && state.Waiting.Message != "":
			return fmt.Sprintf("the pod does not start (%s): %s", state.Waiting.Reason, state.Waiting.Message)
		case state.Waiting != nil && v.Export.Spec.TokenSecretRef != nil:
			return fmt.Sprintf("the pod starts once its volumes and Secret %s are there", *v.Export.Spec.TokenSecretRef)
		}
	}
	return ""
}

// made returns when what is exported was made.
func (v *View) made() metav1.Time {
	switch {
	case v.Snapshot != nil:
		return v.Snapshot.CreationTimestamp
	case v.VM != nil:
		return v.VM.CreationTimestamp
	}
	return v.Export.CreationTimestamp
}
