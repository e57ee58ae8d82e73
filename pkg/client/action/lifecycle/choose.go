package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Lister finds machines.
type Lister interface {
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
	MigrationList(
		ctx context.Context, namespace string, opts metav1.ListOptions,
	) (*v1.VirtualMachineInstanceMigrationList, error)
}

// Choice has the machines that a selector found for a verb, by namespace and name.
type Choice struct {
	Targets []Target
	// Skipped are the machines that the selector matches and the verb makes no sense for.
	Skipped []Skipped
}

// Skipped is a machine that is left alone.
type Skipped struct {
	Target Target
	// Why is a clause: "it is not running".
	Why string
	// Runs says that its guest runs.
	Runs bool
}

// PlanAll takes the machines in that run and that a migration makes no sense for, since a plan says why.
func (c *Choice) PlanAll() {
	c.Skipped = slices.DeleteFunc(c.Skipped, func(s Skipped) bool {
		if s.Runs {
			c.Targets = append(c.Targets, s.Target)
		}
		return s.Runs
	})
	slices.SortFunc(c.Targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Choose finds the machines of a namespace, or of all with "", that a label selector matches (all with "") and that
// verb makes sense for. An instance that has no VirtualMachine counts as a machine for verbs that an instance can be
// asked for. The labels are the VirtualMachine's, and the instance's only where it stands alone. withDisks is
// Options.WithDisks.
func Choose(
	ctx context.Context, lister Lister, verb Verb, withDisks bool, namespace, selector string,
) (Choice, error) {
	vms, err := lister.VMList(ctx, namespace, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return Choice{}, fmt.Errorf("list VMs: %w", err)
	}
	vmis, err := lister.VMIList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return Choice{}, fmt.Errorf("list instances: %w", err)
	}
	alone := map[string]bool{}
	if verb.TakesInstance() {
		matching := vmis
		if selector != "" {
			if matching, err = lister.VMIList(ctx, namespace, metav1.ListOptions{LabelSelector: selector}); err != nil {
				return Choice{}, fmt.Errorf("list instances: %w", err)
			}
		}
		for i := range matching.Items {
			alone[key(&matching.Items[i])] = metav1.GetControllerOf(&matching.Items[i]) == nil
		}
	}
	migrating, err := migratingIn(ctx, lister, verb, namespace)
	if err != nil {
		return Choice{}, err
	}
	return choose(verb, withDisks, vms.Items, vmis.Items, alone, migrating), nil
}

// migratingIn returns the migrations of a namespace that are not over, by instance, for a verb about migrations. Who
// may not list migrations knows of those that the instances know of.
func migratingIn(ctx context.Context, lister Lister, verb Verb, namespace string) (map[string]types.UID, error) {
	if verb != Migrate && verb != MigrateCancel {
		return nil, nil
	}
	list, err := lister.MigrationList(ctx, namespace, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	best := map[string]*v1.VirtualMachineInstanceMigration{}
	if err == nil {
		for i := range list.Items {
			m := &list.Items[i]
			of := m.Namespace + "/" + m.Spec.VMIName
			best[of] = meant(best[of], m)
		}
	}
	out := map[string]types.UID{}
	for of, m := range best {
		if !m.IsFinal() && m.DeletionTimestamp == nil {
			out[of] = m.UID
		}
	}
	return out, nil
}

// choose does Choose's work; alone has the instances that count by themselves, migrating the migrations that are not
// over, by instance.
func choose(
	verb Verb, withDisks bool, vms []v1.VirtualMachine, vmis []v1.VirtualMachineInstance,
	alone map[string]bool, migrating map[string]types.UID,
) Choice {
	instances := map[string]*v1.VirtualMachineInstance{}
	for i := range vmis {
		instances[key(&vmis[i])] = &vmis[i]
	}
	var out Choice
	add := func(t Target, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
		migration, moves := migrating[t.Namespace+"/"+t.Name]
		if verb == MigrateCancel {
			t.Migration = migration
		}
		if ok, why := Applies(verb, vm, vmi, withDisks, moves); ok {
			out.Targets = append(out.Targets, t)
		} else {
			out.Skipped = append(out.Skipped, Skipped{t, why, life.Running(vmi)})
		}
	}
	for i := range vms {
		vm := &vms[i]
		vmi := instances[key(vm)]
		if vmi != nil && !metav1.IsControlledBy(vmi, vm) {
			vmi = nil
		}
		add(Target{Namespace: vm.Namespace, Name: vm.Name, UID: vm.UID}, vm, vmi)
	}
	for i := range vmis {
		if vmi := &vmis[i]; alone[key(vmi)] {
			add(Target{Namespace: vmi.Namespace, Name: vmi.Name, Instance: true, UID: vmi.UID}, nil, vmi)
		}
	}
	slices.SortFunc(out.Targets, byName)
	slices.SortFunc(out.Skipped, func(a, b Skipped) int { return byName(a.Target, b.Target) })
	return out
}

func byName(a, b Target) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func key(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }
