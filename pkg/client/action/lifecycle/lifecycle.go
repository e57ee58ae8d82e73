// Package lifecycle asks for what begins, interrupts and ends the run of virtual machines: start, stop, restart,
// pause, reset, migrate and their like, through the subresources of VirtualMachine and VirtualMachineInstance.
// Do makes one request, Applies says of which machines a request makes sense, and Select finds the machines
// of a selector.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
)

// API has the methods of a client that the package calls.
type API interface {
	Put(ctx context.Context, resource, namespace, name, subresource string, body any) error
	Delete(ctx context.Context, resource, namespace, name string, opts metav1.DeleteOptions) error
	MigrationList(
		ctx context.Context, namespace string, opts metav1.ListOptions,
	) (*v1.VirtualMachineInstanceMigrationList, error)
	CreateTyped(ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool) error
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
}

// Do asks for a verb. It returns when the request is accepted, not when it is done.
func Do(ctx context.Context, api API, verb Verb, t Target, o Options) error {
	err := do(ctx, api, verb, t, o)
	if err != nil {
		return &refusal{verb: verb, target: t.asked(verb), err: err}
	}
	return nil
}

func do(ctx context.Context, api API, verb Verb, t Target, o Options) error {
	resource := client.VMs
	if t.asked(verb).Instance {
		resource = client.VMIs
	}
	if verb == Delete { // whose request has the UID
		return remove(ctx, api, resource, t, o)
	}
	if err := Same(ctx, api, t); err != nil {
		return err
	}
	switch verb {
	case MigrateCancel:
		_, err := cancelMigration(ctx, api, t, o)
		return err
	case Migrate:
		if o.WithDisks || t.WithDisks {
			return migrateWithDisks(ctx, api, t, o)
		}
		return api.Put(ctx, resource, t.Namespace, t.Name, verb.subresource(), o.body(verb))
	case Start, Stop, Restart, Pause, Unpause, Reset, SoftReboot, EvacuateCancel:
		if t.Instance && !verb.TakesInstance() {
			return fmt.Errorf("only a VM can be asked to %s", verb)
		}
		return api.Put(ctx, resource, t.Namespace, t.Name, verb.subresource(), o.body(verb))
	}
	return fmt.Errorf("unknown verb %q", verb)
}

// migrateWithDisks makes a migration that brings the guest's disks along. The subresource of VMs knows nothing of
// them.
func migrateWithDisks(ctx context.Context, api API, t Target, o Options) error {
	if _, err := api.VMI(ctx, t.Namespace, t.Name); err != nil {
		return err
	}
	under, err := Migration(ctx, api, t)
	if err != nil {
		return err
	}
	if under != nil && !under.IsFinal() {
		return apierrors.NewConflict(v1.Resource(client.VMs), t.Name,
			fmt.Errorf("migration %s of it is under way", under.Name))
	}
	migration := migrate.WithDisks(t.Namespace, t.Name, "virtkit-migrate-with-disks-", o.NodeSelector)
	return api.CreateTyped(ctx, "/apis/"+v1.GroupVersion.String(), client.Migrations, migration,
		&v1.VirtualMachineInstanceMigration{}, o.DryRun)
}

// remove deletes the object of a target. One of the same name that was made since stays.
func remove(ctx context.Context, api API, resource string, t Target, o Options) error {
	opts := metav1.DeleteOptions{DryRun: o.dryRun(), GracePeriodSeconds: o.GracePeriodSeconds}
	if t.UID == "" {
		return api.Delete(ctx, resource, t.Namespace, t.Name, opts)
	}
	opts.Preconditions = &metav1.Preconditions{UID: &t.UID}
	err := api.Delete(ctx, resource, t.Namespace, t.Name, opts)
	if apierrors.IsConflict(err) {
		return &GoneError{Another: true, Err: err}
	}
	return err
}

// Migration returns the machine's migration that is under way, else its newest; nil when it has none.
func Migration(ctx context.Context, api API, t Target) (*v1.VirtualMachineInstanceMigration, error) {
	list, err := api.MigrationList(ctx, t.Namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var best *v1.VirtualMachineInstanceMigration
	for i := range list.Items {
		if m := &list.Items[i]; m.Spec.VMIName == t.Name {
			best = meant(best, m)
		}
	}
	return best, nil
}

// meant returns which of two migrations of an instance a verb is about: one that is under way rather than one that is
// being cancelled, and that rather than one that is over; else the newer. best may be nil.
func meant(best, m *v1.VirtualMachineInstanceMigration) *v1.VirtualMachineInstanceMigration {
	rank := func(m *v1.VirtualMachineInstanceMigration) int {
		switch {
		case m.IsFinal():
			return 0
		case m.DeletionTimestamp != nil:
			return 1
		}
		return 2
	}
	if best == nil || rank(m) > rank(best) ||
		rank(m) == rank(best) && best.CreationTimestamp.Before(&m.CreationTimestamp) {
		return m
	}
	return best
}

// refusal is a request that failed. The server begins some of its messages with the machine, which is named already.
type refusal struct {
	verb   Verb
	target Target
	err    error
}

func (r *refusal) Error() string {
	kind := v1.VirtualMachineGroupVersionKind.Kind
	if r.target.Instance {
		kind = v1.VirtualMachineInstanceGroupVersionKind.Kind
	}
	name := r.target.Namespace + "/" + r.target.Name
	text, cut := strings.CutPrefix(r.err.Error(), kind+" "+name+": ")
	if !cut {
		// "VirtualMachineInstance ns/name is not running: …"
		text = strings.Replace(text, kind+" "+name+" is ", "it is ", 1)
	}
	if gone := (*GoneError)(nil); r.verb.OnInstance() && apierrors.IsNotFound(r.err) && !errors.As(r.err, &gone) {
		text += "; only a machine that runs can be asked to " + string(r.verb)
	}
	return fmt.Sprintf("%s %s: %s", r.verb, r.target, text)
}

func (r *refusal) Unwrap() error { return r.err }
