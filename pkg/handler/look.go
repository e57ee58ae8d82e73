package handler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// look gathers what Next wants to know of a VMI that one of the node's caches has.
func (r *Reconciler) look(ctx context.Context, vmi *v1.VirtualMachineInstance) (View, error) {
	v := r.view(client.ObjectKeyFromObject(vmi))
	v.VMI = vmi
	var err error
	switch {
	case v.owned():
		err = r.lookAtOwned(ctx, &v)
	case v.expected():
		err = r.lookAtExpected(ctx, &v)
	default:
		err = r.lookElsewhere(ctx, &v)
	}
	return v, err
}

// view returns what is known without a look at the API.
func (r *Reconciler) view(key types.NamespacedName) View {
	v := View{
		Key: key, Now: r.Node.Now(),
		Here: vmistatus.Target{Node: r.Node.Name, Address: r.Node.Address, Port: r.Node.MigrationPort},
	}
	if s := r.followed(key); s != nil {
		by, _ := s.stopRequest()
		v.Session = &Following{
			VMI: s.target.UID, Pod: s.target.Pod, Seen: s.observation(), StopBy: by, Reported: s.reported,
		}
	}
	return v
}

func (r *Reconciler) lookAtOwned(ctx context.Context, v *View) (err error) {
	if v.Pod, err = r.pod(ctx, r.Cached, v.VMI); err != nil || v.VMI.IsFinal() || !v.scheduled() {
		return err
	}
	if v.Pod == nil {
		// Nobody is given up because of a stale cache.
		if v.Pod, err = r.pod(ctx, r.Live, v.VMI); err != nil {
			return err
		}
	}
	v.MayRun = v.Pod == nil && v.silent() && r.mayRun(v.VMI)
	return r.lookAtOther(ctx, v)
}

func (r *Reconciler) lookAtExpected(ctx context.Context, v *View) (err error) {
	if !v.incoming() {
		return nil
	}
	if v.Pod, err = r.pod(ctx, r.Cached, v.VMI); err != nil {
		return err
	}
	if v.Pod == nil && v.released() != nil {
		// Nobody is given up because of a stale cache.
		switch pod, err := r.pod(ctx, r.Live, v.VMI); {
		case err != nil:
			return err
		case pod != nil:
			return frame.ErrNothing
		}
		v.MayRun = r.mayRun(v.VMI)
	}
	return r.lookAtOther(ctx, v)
}

// lookAtOther asks the API server for the pod on the migration's other node, if the pass depends on it.
func (r *Reconciler) lookAtOther(ctx context.Context, v *View) error {
	name := v.otherPod()
	if name == "" {
		return nil
	}
	var list corev1.PodList
	err := r.Live.List(ctx, &list, client.InNamespace(v.VMI.Namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return fmt.Errorf("get launcher pod %s: %w", name, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		// Names and labels are anybody's to use who may make a pod; the status is the controller's.
		if pod.Name == name && life.HasGuest(v.VMI, pod) {
			v.Other = pod
			break
		}
	}
	return nil
}

// lookElsewhere asks the API server whether the VMI of an unsettled session runs on another node.
func (r *Reconciler) lookElsewhere(ctx context.Context, v *View) error {
	if v.Session == nil || !v.Session.unsettled() {
		return nil
	}
	var found v1.VirtualMachineInstanceList
	named := client.MatchingFields{"metadata.name": v.Key.Name}
	err := r.Live.List(ctx, &found, client.InNamespace(v.Key.Namespace), named)
	if err != nil {
		return fmt.Errorf("get VirtualMachineInstance: %w", err)
	}
	for i := range found.Items {
		vmi := &found.Items[i]
		if vmi.Name == v.Key.Name && vmi.UID == v.Session.VMI && !vmi.IsFinal() {
			v.Elsewhere = vmi.Status.NodeName != "" && vmi.Status.NodeName != r.Node.Name
			break
		}
	}
	return nil
}

// pod finds the VMI's launcher pod on this node, nil when there is none. Only a pod that the controller
// has named in the status counts.
func (r *Reconciler) pod(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance) (*corev1.Pod, error) {
	var list corev1.PodList
	err := from.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingLabels{
		names.LabelComponent: names.VirtLauncher, v1.CreatedByLabel: string(vmi.UID),
	})
	if err != nil {
		return nil, fmt.Errorf("list launcher pods: %w", err)
	}
	var found *corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		// Labels are anybody's to set who may make a pod; the status is the controller's.
		if pod.Spec.NodeName != r.Node.Name || !life.HasGuest(vmi, pod) {
			continue
		}
		if found == nil || better(pod, found) {
			found = pod
		}
	}
	return found, nil
}

// better: a pod that has not ended, then the younger.
func better(a, b *corev1.Pod) bool {
	if life.PodEnded(a) != life.PodEnded(b) {
		return life.PodEnded(b)
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// mayRun reports whether a process of one of the VMI's pods is left on this node. The pods' objects may be gone: who
// deletes one with force does not end its QEMU. What cannot be looked at counts as running.
func (r *Reconciler) mayRun(vmi *v1.VirtualMachineInstance) bool {
	for pod, node := range vmi.Status.ActivePods {
		if node != r.Node.Name {
			continue
		}
		runs, err := podfs.Running(r.Node.ProcDir, pod)
		if err != nil {
			r.Node.Log.Warn("whether a removed pod's processes have ended is not known", "pod", pod, "err", err)
		}
		if runs || err != nil {
			return true
		}
	}
	return false
}
