package rename

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Plan lists the steps of a rename.
type Plan struct {
	// VM is the one of the new name, as it will be or is.
	VM *v1.VirtualMachine
	// Goes says that the old VM is there and goes; Done that there is nothing to do any more.
	Goes, Done bool
	// Passes are the objects that pass over, as in "persistentvolumeclaims/disk".
	Passes []string
	// Notes are what the user should know, in sentences.
	Notes []string
}

// Plan looks whether the VM can be renamed, and by this user. The error says why not.
func (n *Renamer) Plan(ctx context.Context) (*Plan, error) {
	v, err := n.look(ctx)
	if err != nil {
		return nil, err
	}
	step := Next(v)
	if step.Refusal != nil {
		return nil, step.Refusal
	}
	if step.Kind == Done {
		return &Plan{VM: v.New, Done: true}, nil
	}
	if err := n.rights(ctx, v.Dependents); err != nil {
		return nil, err
	}
	renaming, err := v.renaming()
	if err != nil {
		return nil, err
	}
	old := v.original(renaming)
	p := &Plan{VM: v.New, Goes: old != nil}
	if old != nil {
		if p.VM, err = Successor(old, n.request); err != nil {
			return nil, err
		}
	}
	for _, d := range v.Dependents {
		if !d.Fixed {
			p.Passes = append(p.Passes, d.Resource.Name+"/"+d.Meta.Name)
		}
	}
	services, err := n.services(ctx)
	if err != nil {
		return nil, err
	}
	snapshots, err := n.snapshots(ctx, old)
	if err != nil {
		return nil, err
	}
	p.Notes = notes(n.request, old, v.Dependents, services, snapshots)
	return p, nil
}

// snapshots returns the snapshots of the old VM, nil once it is gone; none if the user may not list them.
func (n *Renamer) snapshots(ctx context.Context, old *v1.VirtualMachine) ([]string, error) {
	if old == nil {
		return nil, nil
	}
	var list snapshotv1.VirtualMachineSnapshotList
	err := n.api.Read(ctx, n.path(Snapshots), nil, &list)
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var out []string
	for i := range list.Items {
		s := &list.Items[i]
		if s.Status != nil && s.Status.SourceUID != nil && *s.Status.SourceUID == old.UID {
			out = append(out, s.Name)
		}
	}
	return out, nil
}

// services returns the Services that select the guest by the VM's name; none if the user may not list Services.
func (n *Renamer) services(ctx context.Context) ([]string, error) {
	var list corev1.ServiceList
	err := n.api.Read(ctx, n.path(Services), nil, &list)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var out []string
	for i := range list.Items {
		if list.Items[i].Spec.Selector[v1.VirtualMachineInstanceIDLabel] == names.LabelValue(n.request.Name) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out, nil
}

// notes returns what the rename does not do by itself. old is nil once it is gone.
func notes(r Request, old *v1.VirtualMachine, dependents []Dependent, services, snapshots []string) []string {
	var out []string
	if len(snapshots) > 0 {
		out = append(out, fmt.Sprintf("these snapshots stay those of VM %s, also after an undo: %s; a restore makes "+
			"%[1]s anew from them, with the firmware UUID of %[3]s, and memory that they hold cannot be resumed; take "+
			"new ones of %[3]s", r.Name, strings.Join(snapshots, ", "), r.To))
	}
	if len(services) > 0 {
		out = append(out, fmt.Sprintf("these Services select the guest by its old name and will not find it: %s; make "+
			"them anew with `virtctl expose vm %s`, or change the label %s in their selectors",
			strings.Join(services, ", "), r.To, v1.VirtualMachineInstanceIDLabel))
	}
	if old != nil {
		out = append(out, guestNotes(r, old)...)
	}
	var left []string
	for _, d := range dependents {
		if d.Fixed && !d.Resource.Data {
			left = append(left, d.Resource.Name+"/"+d.Meta.Name)
		}
	}
	if len(left) > 0 {
		out = append(out, fmt.Sprintf("you may not change %s: they stay, and are not deleted with the VM any more",
			strings.Join(left, ", ")))
	}
	return out
}

func guestNotes(r Request, old *v1.VirtualMachine) []string {
	var out []string
	host := names.Host(old.Spec.Template.Spec.Hostname, old.Name)
	if r.Hostname == "" && host != names.Host("", r.To) {
		out = append(out, fmt.Sprintf("the guest's host name stays %s; --hostname changes it", host))
	}
	if dump := old.Status.MemoryDumpRequest; dump != nil {
		out = append(out, fmt.Sprintf("claim %s keeps the memory dump, and is not associated with %s", dump.ClaimName,
			r.To))
	}
	return out
}
