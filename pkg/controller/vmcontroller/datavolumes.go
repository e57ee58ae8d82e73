package vmcontroller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Reasons of a Failure and of events; KubeVirt's but for the first, which it has in an event alone.
const (
	reasonNoCDI             = "CDINotInstalled"
	reasonUnauthorized      = "UnauthorizedDataVolumeCreate"
	reasonFailedDataVolume  = "FailedDataVolumeCreate"
	reasonFailedImport      = "FailedDataVolumeImport"
	reasonCreatedDataVolume = "SuccessfulDataVolumeCreate"
)

// vmsByDataVolume has VMs by the DataVolumes that they use or have templates for.
const vmsByDataVolume = "data-volume"

// dataVolumeNames returns the DataVolumes that a VM names, once each.
func dataVolumeNames(vm *v1.VirtualMachine) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for i := range vm.Spec.DataVolumeTemplates {
		add(vm.Spec.DataVolumeTemplates[i].Name)
	}
	if vm.Spec.Template != nil {
		for i := range vm.Spec.Template.Spec.Volumes {
			if source := vm.Spec.Template.Spec.Volumes[i].DataVolume; source != nil {
				add(source.Name)
			}
		}
	}
	return out
}

// usersOfDataVolume returns the VMs that name it.
func (r *Reconciler) usersOfDataVolume(ctx context.Context, dv client.Object) []reconcile.Request {
	var vms v1.VirtualMachineList
	if dv.GetName() == "" { // the kind came, or is gone
		if err := r.Client.List(ctx, &vms, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list VMs")
			return nil
		}
		return frame.Requests(vms.Items, func(vm *v1.VirtualMachine) bool { return len(dataVolumeNames(vm)) > 0 })
	}
	err := r.Client.List(ctx, &vms, client.InNamespace(dv.GetNamespace()),
		client.MatchingFields{vmsByDataVolume: dv.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMs by DataVolume", "dataVolume", dv.GetName())
		return nil
	}
	return frame.Requests(vms.Items, nil)
}

// lookAtDataVolumes finds those that the VM names, and the claims of its templates' names.
func (r *Reconciler) lookAtDataVolumes(ctx context.Context, view *View) error {
	names := dataVolumeNames(view.VM)
	if len(names) == 0 || view.VM.DeletionTimestamp != nil {
		return nil
	}
	view.CDI, view.TemplateClaims = r.CDI.Installed(), map[string]bool{}
	view.DataVolumes = map[string]*cdiv1.DataVolume{}
	for _, name := range names {
		dv, err := r.CDI.Get(ctx, view.VM.Namespace, name)
		if err != nil {
			return err
		}
		if dv != nil {
			view.DataVolumes[name] = dv
		}
	}
	for i := range view.VM.Spec.DataVolumeTemplates {
		name := view.VM.Spec.DataVolumeTemplates[i].Name
		var found corev1.PersistentVolumeClaim
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: view.VM.Namespace, Name: name}, &found)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get claim %s: %w", name, err)
		}
		view.TemplateClaims[name] = err == nil
	}
	return nil
}

// provide has the DataVolumes made of the VM's templates that are missing. What stands in the way is the view's
// Failure.
func (s *Step) provide() {
	view := &s.After
	view.Filled = true
	if view.VM.DeletionTimestamp != nil {
		return
	}
	missing := view.fill(view.TemplateClaims, view.CDI, s.Decision.Wanted)
	if view.Failure == "" {
		s.DataVolumes = missing
	}
}

// fill returns the templates that want a DataVolume made, and sets Filled, and Failure where one will not come about by
// itself. existing are the names of the templates that have a claim: such a claim was filled before, or restored.
func (view *View) fill(existing map[string]bool, installed, wanted bool) []*v1.DataVolumeTemplateSpec {
	var missing []*v1.DataVolumeTemplateSpec
	for i := range view.VM.Spec.DataVolumeTemplates {
		template := &view.VM.Spec.DataVolumeTemplates[i]
		dv := view.DataVolumes[template.Name]
		switch {
		case dv != nil:
			switch claims.StateOf(dv) {
			case claims.Filling:
				view.Filled = false
			case claims.Failed:
				view.Filled = false
				view.fail(reasonFailedImport, fmt.Sprintf("DataVolume %q: %s; see kubectl describe datavolume %s, "+
					"delete it to have it made anew", dv.Name, claims.Trouble(dv), dv.Name))
			}
		case existing[template.Name]:
		case !installed:
			view.Filled = false
			view.fail(reasonNoCDI,
				fmt.Sprintf("spec.dataVolumeTemplates: DataVolume %q cannot be made, since the cluster has no "+
					"DataVolumes; "+
					"install CDI (the Containerized Data Importer), or make a PersistentVolumeClaim %q with the disk",
					template.Name, template.Name))
		default:
			view.Filled = false
			if wanted || view.VM.Annotations[v1.ImmediateDataVolumeCreation] != "false" {
				missing = append(missing, template)
			}
		}
	}
	return missing
}

// fail sets the Failure unless there is one.
func (view *View) fail(reason, message string) {
	if view.Failure == "" {
		view.FailureReason, view.Failure = reason, message
	}
}

// anyDataVolume reports whether one that the VM names is so.
func anyDataVolume(view View, so func(*cdiv1.DataVolume) bool) bool {
	for _, dv := range view.DataVolumes {
		if so(dv) {
			return true
		}
	}
	return false
}

// unbound reports a DataVolume that waits for a pod to be bound.
func unbound(dv *cdiv1.DataVolume) bool {
	switch claims.StateOf(dv) {
	case claims.Unclaimed, claims.Claimable:
		return !claims.Provisioning(dv)
	}
	return false
}
