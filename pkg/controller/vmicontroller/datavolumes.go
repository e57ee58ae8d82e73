package vmicontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// ReasonFailedImport is the reason of events about a DataVolume that CDI could not fill; KubeVirt's.
const ReasonFailedImport = "FailedDataVolumeImport"

// messageReady is the message of condition DataVolumesReady.
const messageReady = "All of the VMI's DataVolumes are filled"

// lookAtDataVolumes reads those that the VMI's claims have, or are named by its volumes.
func (r *Reconciler) lookAtDataVolumes(ctx context.Context, view *View) error {
	view.CDI = r.CDI.Installed()
	if !view.CDI {
		return nil
	}
	view.DataVolumes = map[string]*cdiv1.DataVolume{}
	for _, name := range claimNames(view.VMI) {
		if !ofDataVolume(view.VMI, name) && (view.Claims[name] == nil || !claims.Owned(view.Claims[name])) {
			continue
		}
		dv, err := r.CDI.Get(ctx, view.VMI.Namespace, name)
		if err != nil {
			return err
		}
		if dv != nil {
			view.DataVolumes[name] = dv
		}
	}
	return nil
}

// ofDataVolume reports a claim that the VMI names as a DataVolume.
func ofDataVolume(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Spec.Volumes,
		func(v v1.Volume) bool { return v.DataVolume != nil && v.DataVolume.Name == name })
}

// missingClaim returns which claim does not exist and will not be made, or "" when it exists or will be.
func missingClaim(view View, name string) string {
	switch {
	case view.Claims[name] != nil || view.DataVolumes[name] != nil:
		return ""
	case !ofDataVolume(view.VMI, name):
		return fmt.Sprintf("PersistentVolumeClaim %q does not exist in namespace %q", name, view.VMI.Namespace)
	case view.CDI:
		return fmt.Sprintf("DataVolume %q does not exist in namespace %q, and neither does a PersistentVolumeClaim "+
			"of that name", name, view.VMI.Namespace)
	}
	return fmt.Sprintf("DataVolume %q cannot be had: the cluster has no DataVolumes, and namespace %q no "+
		"PersistentVolumeClaim of that name; "+
		"install CDI (the Containerized Data Importer), or make the claim", name, view.VMI.Namespace)
}

// stateOf returns the state of a claim of the VMI that exists, or whose DataVolume does.
func stateOf(view View, name string) claims.State {
	dv := view.DataVolumes[name]
	bound := view.Claims[name]
	switch {
	case bound == nil && dv != nil && claims.StateOf(dv) != claims.Failed:
		return claims.Filling
	case bound == nil && dv != nil:
		return claims.Failed
	case bound == nil:
		return claims.Filling
	case !view.CDI:
		return claims.Populated // Its maker is gone; the claim stays as it is.
	}
	return claims.StateOfClaim(bound, dv)
}

// unfilled returns why a claim is no disk yet, or "" when it is one, or will be once its pod is there.
func unfilled(view View, name string) string {
	state := stateOf(view, name)
	if state == claims.Populated || state == claims.Claimable {
		return ""
	}
	return claims.Unfilled(name, view.DataVolumes[name])
}

// wantsPod reports a claim that CDI fills once a pod is to use it.
func wantsPod(view View, name string) bool { return stateOf(view, name) == claims.Unclaimed }

// fill asks for the pod when all claims are filled. Those that CDI fills once there is a pod for them get one that does
// nothing, made of the launcher's so that it goes where that can.
func (s *Step) fill(view View) {
	var reasons []string
	unclaimed, failed := false, ""
	for _, name := range bootClaimNames(view.VMI) {
		why := unfilled(view, name)
		if why == "" {
			continue
		}
		reasons = append(reasons, why)
		switch stateOf(view, name) {
		case claims.Unclaimed:
			unclaimed = true
		case claims.Failed:
			failed = why
		}
	}
	pod := provisioning(view)
	if len(reasons) > 0 {
		if failed != "" {
			s.wait(view, ReasonFailedImport, failed)
		} else {
			s.pending(view)
			conditions.Remove(&s.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		}
		conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceDataVolumesReady, Status: corev1.ConditionFalse,
			Reason: v1.VirtualMachineInstanceReasonNotAllDVsReady, Message: strings.Join(reasons, "; "),
		}, view.Now)
	}
	switch {
	case pod == nil:
		conditions.Remove(&s.Status.Conditions, v1.VirtualMachineInstanceProvisioning)
		s.CreateProvisioning = unclaimed && failed == ""
		s.CreatePod = len(reasons) == 0
	case unclaimed && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed:
		s.provisions(view)
	default: // It has done its work, or could not. Its end brings the next step.
		s.provisions(view)
		if pod.DeletionTimestamp == nil {
			s.DeletePods = []*corev1.Pod{pod}
		}
	}
	if s.CreateProvisioning {
		s.provisions(view)
	}
}

func (s *Step) provisions(view View) {
	conditions.Set(&s.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceProvisioning, Status: corev1.ConditionTrue,
		Message: "a pod uses the volumes, so that CDI fills them",
	}, view.Now)
}

// filled sets the conditions of DataVolumes once the VMI has its pod.
func filled(status *v1.VirtualMachineInstanceStatus, view View) {
	conditions.Remove(&status.Conditions, v1.VirtualMachineInstanceProvisioning)
	if conditions.Find(status.Conditions, v1.VirtualMachineInstanceDataVolumesReady) == nil &&
		len(view.DataVolumes) == 0 {
		return
	}
	conditions.Set(&status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceDataVolumesReady, Status: corev1.ConditionTrue,
		Reason: v1.VirtualMachineInstanceReasonAllDVsReady, Message: messageReady,
	}, view.Now)
}

// provisioningName returns the name of the VMI's provisioning pod.
func provisioningName(vmi *v1.VirtualMachineInstance) string { return PodName(vmi) + "-volumes" }

// provisioning returns the VMI's provisioning pod, nil when there is none.
func provisioning(view View) *corev1.Pod {
	i := slices.IndexFunc(view.Pods, func(pod *corev1.Pod) bool { return pod.Name == provisioningName(view.VMI) })
	if i < 0 {
		return nil
	}
	return view.Pods[i]
}

// Provisioning returns the pod that uses a VMI's claims before its launcher does, for CDI to fill those that wait for a
// consumer: the launcher's pod, so that it is scheduled the same way, with a program that ends at once.
func Provisioning(vmi *v1.VirtualMachineInstance, facts Facts) *corev1.Pod {
	pod := Pod(vmi, facts)
	pod.Name = provisioningName(vmi)
	pod.Labels = map[string]string{v1.AppLabel: names.ProvisioningPod}
	pod.Annotations = map[string]string{v1.EphemeralProvisioningObject: "true"}
	pod.Spec.Hostname, pod.Spec.Subdomain = "", ""
	pod.Spec.ReadinessGates = nil // no guest comes
	pod.Spec.TerminationGracePeriodSeconds = new(int64(attachmentGrace))

	var keep []corev1.Volume
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			keep = append(keep, volume)
		}
	}
	dropped := func(name string) bool {
		return !slices.ContainsFunc(keep, func(v corev1.Volume) bool { return v.Name == name })
	}
	pod.Spec.Volumes = keep
	container := &pod.Spec.Containers[0]
	container.Command, container.Args = []string{"/usr/bin/busybox", "true"}, nil
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts,
		func(m corev1.VolumeMount) bool { return dropped(m.Name) })
	return pod
}
