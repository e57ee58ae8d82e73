package migrate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// WithDisks returns the migration to be made that brings a guest's disks along; the server appends to prefix. The
// subresource of VMs makes none such.
func WithDisks(namespace, name, prefix string, selector map[string]string) *v1.VirtualMachineInstanceMigration {
	return &v1.VirtualMachineInstanceMigration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineInstanceMigrationGroupVersionKind.Kind,
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: prefix,
			Annotations: map[string]string{volumemigration.WithDisksAnnotation: "true"},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: name, AddedNodeSelector: selector},
	}
}
