package virtapi

import (
	"context"
	"fmt"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

const virtualMachineInstanceMigrations = "virtualmachineinstancemigrations"

// migrate makes a VirtualMachineInstanceMigration for the guest of a VM.
func (q *requests) migrate(r *restful.Request, namespace, name string) error {
	options := &v1.MigrateOptions{}
	if err := decode(r.Request, options); err != nil {
		return err
	}
	if err := checkDryRun(options.DryRun); err != nil {
		return err
	}
	if errs := metavalidation.ValidateLabels(options.AddedNodeSelector, field.NewPath("addedNodeSelector")); len(errs) >
		0 {
		return badRequest(surface.Message(errs))
	}
	ctx := r.Request.Context()
	vm, vmi, err := q.machines.machine(ctx, namespace, name)
	if err != nil {
		return err
	}
	others, err := q.machines.migrations(ctx, namespace)
	if err != nil {
		return err
	}
	if err := mayMigrate(vm, vmi, others); err != nil {
		return err
	}
	return q.machines.createMigration(ctx, &v1.VirtualMachineInstanceMigration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1.GroupVersion.String(),
			Kind:       v1.VirtualMachineInstanceMigrationGroupVersionKind.Kind,
		},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "kubevirt-migrate-vm-", Namespace: namespace,
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: name, AddedNodeSelector: options.AddedNodeSelector},
	}, options.DryRun)
}

// mayMigrate returns why a VM cannot move now; vmi is nil when it does not run.
func mayMigrate(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, others []v1.VirtualMachineInstanceMigration,
) error {
	if !life.Running(vmi) {
		return conflict(vm, "VM is not running")
	}
	if why := volumemigration.Refusal(vmi); why != "" {
		return conflict(vm, why)
	}
	for i := range others {
		other := &others[i]
		if other.Spec.VMIName == vm.Name && !other.IsFinal() {
			return conflict(vm, fmt.Sprintf("in-flight migration detected. Active migration job (%s) is currently "+
				"already in progress for VMI %s", other.Name, vm.Name))
		}
	}
	return nil
}

func (m *machines) migrations(ctx context.Context, namespace string) ([]v1.VirtualMachineInstanceMigration, error) {
	list := &v1.VirtualMachineInstanceMigrationList{}
	err := m.kubevirt.Get().Namespace(namespace).Resource(virtualMachineInstanceMigrations).Do(ctx).Into(list)
	return list.Items, err
}

func (m *machines) createMigration(
	ctx context.Context, migration *v1.VirtualMachineInstanceMigration, dryRun []string,
) error {
	request := m.kubevirt.Post().Namespace(migration.Namespace).Resource(virtualMachineInstanceMigrations).
		Body(migration).Param("fieldManager", "virt-api")
	for _, run := range dryRun {
		request = request.Param("dryRun", run)
	}
	return request.Do(ctx).Error()
}
