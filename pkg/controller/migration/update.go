package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Update makes the migration by which a guest gets what only another pod has: another launcher, another size or network.
// It is not noted: its name depends on what was made before, so that a second one does not come about where the cache has
// not seen the first.
func Update(
	ctx context.Context, to client.Writer, recorder record.EventRecorder, instance *v1.VirtualMachineInstance, name string,
) error {
	err := to.Create(ctx, &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: instance.Namespace,
			Annotations: map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: instance.Name},
	})
	switch {
	case err == nil:
		recorder.Eventf(instance, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created Migration %s for automated workload update", name)
		return nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // Not seen yet, or nothing to move any more.
	}
	recorder.Eventf(instance, corev1.EventTypeWarning, ReasonFailedCreate,
		"Error creating a Migration for automated workload update: %v", err)
	return fmt.Errorf("create a migration: %w", err)
}
