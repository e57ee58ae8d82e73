package guestfs

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// API is what the package needs of a client.
type API interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
	CreateTyped(ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool) error
	DeleteObject(ctx context.Context, group, namespace, resource, name string, opts metav1.DeleteOptions) error
	PodProcess(
		ctx context.Context, namespace, pod, way string, query url.Values, opts stream.Options,
	) (stream.PodProcess, error)
	GuestfsImage(ctx context.Context) (string, error)
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
}

const core = "/api/v1"

// InUseError is a claim that somebody uses.
type InUseError struct {
	Namespace, Claim string
	// By is the first who does: VMs come before pods.
	By claims.User
}

func (e *InUseError) Error() string {
	what := "VM " + e.By.Name + ", which runs or is about to"
	switch {
	case e.By == claims.User{Kind: "pod", Name: PodName(e.Claim)}:
		what = "another session, in pod " + e.By.Name
	case e.By.Kind != "":
		what = e.By.String()
	}
	return fmt.Sprintf("PVC %s/%s is used by %s", e.Namespace, e.Claim, what)
}

// Claim reads a claim that nobody uses. It deletes what an earlier session has left of its pod, once that has ended.
// Errors: *InUseError, apierrors.IsNotFound.
func Claim(ctx context.Context, api API, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	path := core + "/namespaces/" + url.PathEscape(namespace)
	if err := api.Read(ctx, path+"/persistentvolumeclaims/"+url.PathEscape(name), nil, claim); err != nil {
		return nil, fmt.Errorf("look at PVC %s/%s: %w", namespace, name, err)
	}
	if claim.DeletionTimestamp != nil {
		return nil, fmt.Errorf("PVC %s/%s is being deleted; choose another", namespace, name)
	}
	if uploads.RequestOf(claim.Annotations) != nil {
		return nil, fmt.Errorf("an image is being uploaded to PVC %s/%s; wait, or end that with `virtctl image-upload "+
			"pvc %s -n %s --cancel`", namespace, name, name, namespace)
	}
	var pods corev1.PodList
	if err := api.Read(ctx, path+"/pods", nil, &pods); err != nil {
		return nil, fmt.Errorf("look at the pods that may use PVC %s/%s: %w", namespace, name, err)
	}
	vms, err := api.VMList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at the VMs that may use PVC %s/%s: %w", namespace, name, err)
	}
	vmis, err := api.VMIList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at the VMIs that may use PVC %s/%s: %w", namespace, name, err)
	}
	if users := usersOf(name, vms.Items, vmis.Items, pods.Items); len(users) > 0 {
		return nil, &InUseError{namespace, name, users[0]}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ours := pod.Name == PodName(name) && pod.Labels[names.LabelComponent] == names.VirtGuestfs
		if ours && life.PodEnded(pod) {
			if err := remove(ctx, api, pod); err != nil {
				return nil, err
			}
		}
	}
	return claim, nil
}

// Remark returns what who works at a claim should know of its uploads, or "".
func Remark(claim *corev1.PersistentVolumeClaim) string {
	if len(uploads.Awaiting(claim.Annotations)) > 0 {
		return fmt.Sprintf("PVC %s/%s was made for an upload, and nothing was uploaded to it: `virtctl image-upload` "+
			"may replace what you write to it", claim.Namespace, claim.Name)
	}
	return uploads.Unusable(claim.Name, claim.Annotations)
}

// usersOf returns who uses a claim now, or may at any moment: pods, VMIs, and VMs that start by themselves.
func usersOf(
	claim string, vms []v1.VirtualMachine, vmis []v1.VirtualMachineInstance, pods []corev1.Pod,
) []claims.User {
	users := claims.Users{}
	failed := map[types.UID]bool{} // the VMs whose guest has failed
	for i := range vmis {
		owner := metav1.GetControllerOfNoCopy(&vmis[i])
		if owner != nil && vmis[i].Status.Phase == v1.Failed && vmis[i].DeletionTimestamp == nil {
			failed[owner.UID] = true
		}
	}
	for i := range vms {
		if vm := &vms[i]; starts(vm) || failed[vm.UID] && reruns(vm) {
			users.AddVM(vm)
		}
	}
	for i := range vmis {
		if life.Alive(&vmis[i]) {
			users.AddVMI(&vmis[i])
		}
	}
	users.AddPods(pods)
	return users.Others(claim, "")
}

// starts reports a VM that starts without anybody's doing. One that starts once has done so when its status has the
// strategy.
func starts(vm *v1.VirtualMachine) bool {
	if runstrategy.Requested(vm, v1.StartRequest) {
		return true
	}
	strategy, err := vm.RunStrategy()
	if err != nil || vm.DeletionTimestamp != nil {
		return false
	}
	once := strategy == v1.RunStrategyOnce || strategy == v1.RunStrategyRerunOnFailure
	return strategy == v1.RunStrategyAlways || once && vm.Status.RunStrategy != strategy
}

// reruns reports a VM that starts again once its guest has failed: virt-controller may be about to ask for that start.
// It does not while the VM is asked to stop.
func reruns(vm *v1.VirtualMachine) bool {
	strategy, err := vm.RunStrategy()
	return err == nil && strategy == v1.RunStrategyRerunOnFailure && vm.DeletionTimestamp == nil &&
		!runstrategy.Requested(vm, v1.StopRequest)
}

// Offered reports whether a node offers its KVM. Who may not look at nodes gets false.
func Offered(ctx context.Context, api API) (bool, error) {
	var nodes corev1.NodeList
	switch err := api.Read(ctx, core+"/nodes", nil, &nodes); {
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a node with KVM: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if n := node.Status.Allocatable[names.ResourceKVM]; n.Sign() > 0 && !node.Spec.Unschedulable {
			return true, nil
		}
	}
	return false, nil
}

// ErrNoImage is a cluster whose virtkit or KubeVirt does not say which image has libguestfs.
var ErrNoImage = errors.New("this cluster does not say which image has libguestfs")

// Image returns the cluster's image with libguestfs.
func Image(ctx context.Context, api API) (string, error) {
	image, err := api.GuestfsImage(ctx)
	switch {
	case apierrors.IsNotFound(err), err == nil && image == "":
		return "", ErrNoImage
	case err != nil:
		return "", fmt.Errorf("ask which image has libguestfs: %w", err)
	}
	return image, nil
}

// precondition deletes a pod that is still the same.
func precondition(pod *corev1.Pod) metav1.DeleteOptions {
	uid := pod.UID
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}
