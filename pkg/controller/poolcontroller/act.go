package poolcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/canonical"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

// makeRevision keeps the pool's template under a name.
func (r *Reconciler) makeRevision(ctx context.Context, p *v1beta1.VirtualMachinePool, name string) error {
	data, err := canonical.Encode(pools.TemplateOf(p))
	if err != nil {
		return fmt.Errorf("encode spec.virtualMachineTemplate: %w", err)
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, Labels: map[string]string{RevisionLabel: string(p.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, pools.Kind)},
		},
		Data: data, Revision: p.Generation,
	}
	err = r.writes.Create(ctx, revision)
	if apierrors.IsAlreadyExists(err) {
		// Who has the name is a part of the answer.
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(revision), revision); err != nil {
			return fmt.Errorf("get ControllerRevision: %w", err)
		}
	}
	return revisionMade(p, revision, err)
}

// apply does what the step says, and writes the result.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if step.MakeRevision {
		return r.makeRevision(ctx, view.Pool, step.Revision)
	}
	out := r.act(ctx, view, step)
	if err := r.writeStatus(ctx, view.Pool, out.status(view, step, r.Now())); err != nil {
		return err
	}
	return errors.Join(out.errs...)
}

// act carries a step out. Its parts do not wait for each other.
func (r *Reconciler) act(ctx context.Context, view View, step *Step) outcome {
	var out outcome
	out.add(ReasonFailedScaleIn, r.release(ctx, view.Pool, step.Release))
	out.add(ReasonFailedScaleIn, r.scaleIn(ctx, view.Pool, step))
	out.add(ReasonFailedUpdate,
		r.remove(ctx, view.Pool, step.Heal, "Deleted VM %s/%s, which does not start, to make it anew"))
	out.add(ReasonFailedUpdate, r.remove(ctx, view.Pool, step.Replace,
		"Deleted VM %s/%s, whose dataVolumeTemplates have changed, to make it anew"))
	var err error
	out.made, err = r.create(ctx, view.Pool, step)
	out.add(ReasonFailedScaleOut, err)
	out.add(ReasonFailedUpdate, frame.SlowStart(len(step.Update),
		func(i int) error { return r.change(ctx, view.Pool, step.Update[i]) }))
	out.add(ReasonFailedUpdate,
		frame.SlowStart(len(step.Restart), func(i int) error { return r.restart(ctx, view.Pool, step.Restart[i]) }))
	out.add(ReasonFailedUpdate,
		frame.SlowStart(len(step.Relabel), func(i int) error { return r.relabel(ctx, step.Relabel[i]) }))
	out.add(ReasonFailedPruning, r.prune(ctx, view, step.Prune))
	return out
}

// release takes the pool from the owners of VMs.
func (r *Reconciler) release(ctx context.Context, p *v1beta1.VirtualMachinePool, machines []*v1.VirtualMachine) error {
	for _, machine := range machines {
		if err := r.disown(ctx, machine, p.UID); err != nil {
			return fmt.Errorf("release VM %s: %w", machine.Name, err)
		}
	}
	return nil
}

// disown takes an owner from an object.
func (r *Reconciler) disown(ctx context.Context, object client.Object, owner types.UID) error {
	after := object.DeepCopyObject().(client.Object)
	owners := slices.DeleteFunc(after.GetOwnerReferences(),
		func(o metav1.OwnerReference) bool { return o.UID == owner })
	after.SetOwnerReferences(owners)
	return r.writes.Patch(ctx, object, after)
}

// scaleIn deletes VMs that are too many, after it has made what is to outlive them independent.
func (r *Reconciler) scaleIn(ctx context.Context, p *v1beta1.VirtualMachinePool, step *Step) error {
	const says = "Deleted VM %s/%s from pool"
	if !step.Preserve {
		return r.remove(ctx, p, step.Delete, says)
	}
	return frame.SlowStart(len(step.Delete), func(i int) error {
		machine := step.Delete[i]
		for _, disk := range step.Keep[machine.UID] {
			if err := r.disown(ctx, disk, machine.UID); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("keep %T %s: %w", disk, disk.GetName(), err)
			}
		}
		return r.delete(ctx, p, machine, says)
	})
}

// remove deletes VMs. The name of one that has DataVolumes is free only when these are gone, too, so that one of its
// name does not find them.
func (r *Reconciler) remove(
	ctx context.Context, p *v1beta1.VirtualMachinePool, machines []*v1.VirtualMachine, says string,
) error {
	return frame.SlowStart(len(machines), func(i int) error {
		if len(machines[i].Spec.DataVolumeTemplates) > 0 {
			return r.delete(ctx, p, machines[i], says, client.PropagationPolicy(metav1.DeletePropagationForeground))
		}
		return r.delete(ctx, p, machines[i], says)
	})
}

func (r *Reconciler) delete(
	ctx context.Context, p *v1beta1.VirtualMachinePool, machine *v1.VirtualMachine, says string,
	options ...client.DeleteOption,
) error {
	deleted, err := r.writes.Delete(ctx, machine, options...)
	if err != nil {
		r.Recorder.Eventf(p, corev1.EventTypeWarning, vmicontroller.ReasonFailedDelete,
			"Error deleting VM %s/%s: %v", machine.Namespace, machine.Name, err)
		return fmt.Errorf("delete VM %s: %w", machine.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(p, corev1.EventTypeNormal, vmicontroller.ReasonSuccessfulDelete, says, machine.Namespace,
			machine.Name)
	}
	return nil
}

// create makes the VMs that are missing.
func (r *Reconciler) create(
	ctx context.Context, p *v1beta1.VirtualMachinePool, step *Step,
) (made []*v1.VirtualMachine, err error) {
	template := pools.TemplateOf(p)
	results := make([]*v1.VirtualMachine, len(step.Create))
	err = frame.SlowStart(len(step.Create), func(i int) error {
		machine := pools.Machine(p, template, step.Create[i], step.Revision)
		if err := r.writes.CreateCounted(ctx, p, machine, r.Now()); err != nil {
			if apierrors.IsAlreadyExists(err) {
				// Its event brings another ordinal.
				return fmt.Errorf("create VM %s: another made one of that name", machine.Name)
			}
			return fmt.Errorf("create VM %s: %w", machine.Name, err)
		}
		results[i] = machine
		r.Recorder.Eventf(p, corev1.EventTypeNormal, vmicontroller.ReasonSuccessfulCreate, "Created VM %s/%s",
			machine.Namespace, machine.Name)
		return nil
	})
	made = slices.DeleteFunc(results, func(machine *v1.VirtualMachine) bool { return machine == nil })
	switch {
	case frame.Ending(err):
		return made, nil // The pool goes with its namespace.
	case err != nil:
		r.Recorder.Eventf(p, corev1.EventTypeWarning, vmicontroller.ReasonFailedCreate, "Error creating VM: %v", err)
	}
	return made, err
}

// change brings a VM to the pool's template.
func (r *Reconciler) change(ctx context.Context, p *v1beta1.VirtualMachinePool, update Update) error {
	if update.Patch == nil {
		return update.Err
	}
	after := update.VM.DeepCopy()
	if err := r.writes.PatchAs(ctx, after, client.RawPatch(types.MergePatchType, update.Patch)); err != nil {
		if !apierrors.IsConflict(err) {
			r.Recorder.Eventf(p, corev1.EventTypeWarning, ReasonFailedUpdate,
				"Error updating virtual machine %s/%s: %v", after.Namespace, after.Name, err)
		}
		return fmt.Errorf("update VM %s: %w", after.Name, err)
	}
	r.Recorder.Eventf(p, corev1.EventTypeNormal, ReasonUpdated, "Updated VM %s/%s", after.Namespace, after.Name)
	return nil
}

// restart asks the VM's reconciler to stop the guest and start it again.
func (r *Reconciler) restart(ctx context.Context, p *v1beta1.VirtualMachinePool, m Machine) error {
	after := m.VM.DeepCopy()
	if err := frame.PatchStatus(ctx, r.writes, after, &after.Status.StateChangeRequests, Restart(m.VMI.UID)); err !=
		nil {
		return fmt.Errorf("restart VM %s: %w", m.VM.Name, err)
	}
	r.Recorder.Eventf(p, corev1.EventTypeNormal, ReasonUpdated, "Restarting VM %s/%s, whose template has changed",
		m.VM.Namespace, m.VM.Name)
	return nil
}

// relabel writes down that a guest is as the VM's revision wants it.
func (r *Reconciler) relabel(ctx context.Context, m Machine) error {
	after := m.VMI.DeepCopy()
	const label = v1.VirtualMachinePoolRevisionName
	metav1.SetMetaDataLabel(&after.ObjectMeta, label, m.VM.Labels[label])
	if err := r.writes.Patch(ctx, m.VMI, after); err != nil {
		return fmt.Errorf("label VMI %s: %w", m.VMI.Name, err)
	}
	return nil
}

func (r *Reconciler) prune(ctx context.Context, view View, names []string) error {
	for _, name := range names {
		if _, err := r.writes.Delete(ctx, view.Stored[name]); err != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", name, err)
		}
	}
	return nil
}
