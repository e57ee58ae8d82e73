package vmicontroller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/written"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Planned is a pod to be created, and its purpose: one of View.Created, or the hotplugged volume that it holds.
type Planned struct {
	For string
	Pod *corev1.Pod
}

// plan adds the pods and the claim that are to be created. That a pod cannot be planned is said in the VMI's status.
func (s *Step) plan(view View) {
	if s.CreateState {
		s.State = StateClaim(view.VMI, view.Facts.Config)
	}
	guestPod := life.GuestPod(view.VMI, view.Pods)
	here := hotplug.AtSource(view.VMI)
	for _, volume := range s.CreateAttachments {
		s.Attachments = append(s.Attachments,
			Planned{volume, Attachment(here, []string{volume}, guestPod, view.Facts)})
	}
	if !s.createsLauncher() {
		return
	}
	if err := view.Facts.NetworkErr; err != nil {
		s.CreatePod, s.CreateProvisioning = false, false
		s.Failed = s.cannotCreate(view, ReasonFailedCreate, names.MessageCreatePod, err)
		return
	}
	if s.CreatePod {
		s.Pods = append(s.Pods, Planned{purposeLauncher, Pod(view.VMI, view.Facts)})
	}
	if s.CreateProvisioning {
		s.Pods = append(s.Pods, Planned{purposeProvisioning, Provisioning(view.VMI, view.Facts)})
	}
}

// createsLauncher reports whether the VMI's pod is to be created, or the one before it.
func (s *Step) createsLauncher() bool { return s.CreatePod || s.CreateProvisioning }

// lookAtFacts gathers what pods that are to be created depend on. It asks the API server for most of it, so only for a
// pod that the VMI gets now.
func (r *Reconciler) lookAtFacts(ctx context.Context, view *View) error {
	view.Facts = Facts{Config: r.Config(), Image: r.Image, ImagePullPolicy: r.ImagePullPolicy, Claims: view.Claims}
	if step := decide(*view); !step.createsLauncher() {
		return nil
	}
	return view.Facts.Gather(ctx, r.Client, r.Live, view.VMI, r.FenceAfter)
}

// createPod makes the VMI's pod, or the one before it. That it cannot be made is said in the VMI's status.
func (r *Reconciler) createPod(ctx context.Context, view View, step *Step, planned Planned) error {
	creator := Creator{Writes: r.writes, Live: r.Live, Created: r.Created}
	err := creator.CreatePod(ctx, view.VMI, planned.For, planned.Pod)
	if err == nil {
		r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created virtual machine pod %s", planned.Pod.Name)
		return nil
	}
	return step.podRefused(view, err)
}

// ErrRecorded says that the VMI has a pod of that name already, which the cache does not show yet.
var ErrRecorded = errors.New("the VMI has the pod already")

// Creator creates pods for VMIs and remembers their UIDs.
type Creator struct {
	Writes  *frame.Writes
	Live    client.Reader
	Created *written.Creations
}

// CreatePod creates a pod for a VMI. Where its name is taken by a pod that is not known to be the VMI's, it gets
// another name; a pod of that name which an earlier virt-controller made and did not record is deleted. It returns
// ErrRecorded when the name is that of a pod which is the VMI's.
func (c Creator) CreatePod(
	ctx context.Context, vmi *v1.VirtualMachineInstance, purpose string, pod *corev1.Pod,
) error {
	err := c.create(ctx, vmi.UID, purpose, pod)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var existing corev1.Pod
	err = c.Live.Get(ctx, client.ObjectKeyFromObject(pod), &existing)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, vmi.UID, purpose, pod)
	case err != nil:
		return fmt.Errorf("get pod %s: %w", pod.Name, err)
	}
	known, err := c.known(ctx, vmi, &existing)
	if err != nil {
		return err
	}
	if known {
		return ErrRecorded
	}
	if OwnedBy(&existing, vmi.UID) && life.PodStaying(&existing) {
		if _, err := c.Writes.Delete(ctx, &existing, client.GracePeriodSeconds(strayGrace)); err != nil {
			return fmt.Errorf("delete pod %s, which is not recorded as the VMI's: %w", existing.Name, err)
		}
	}
	pod.Name += "-" + utilrand.String(5)
	return c.create(ctx, vmi.UID, purpose, pod)
}

func (c Creator) create(ctx context.Context, vmi types.UID, purpose string, pod *corev1.Pod) error {
	end := c.Created.Begin(vmi, purpose)
	err := c.Writes.Create(ctx, pod)
	if err != nil {
		end(nil)
		return err
	}
	end(pod)
	return nil
}

// known reports whether a pod was created by this virt-controller for the VMI, or is recorded in its status.
func (c Creator) known(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (bool, error) {
	created, _ := c.Created.Of(vmi.UID)
	if _, ok := created[pod.UID]; ok {
		return true, nil
	}
	var current v1.VirtualMachineInstance
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(vmi), &current); err != nil {
		return false, fmt.Errorf("get VirtualMachineInstance %s: %w", vmi.Name, err)
	}
	return life.Recorded(&current, pod), nil
}
