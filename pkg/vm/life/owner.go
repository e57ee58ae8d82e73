package life

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// InstanceOf returns the reference to the VMI that controls an object, nil when the object has another controller or
// none. It is what the object says: whoever may make pods can write it.
func InstanceOf(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != v1.VirtualMachineInstanceGroupVersionKind.Kind {
		return nil
	}
	return owner
}

// LauncherOf returns the reference to the launcher pod that an attachment pod belongs to, nil for any other object.
func LauncherOf(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if object.GetLabels()[v1.AppLabel] != names.HotplugDisk || owner == nil || owner.Kind != "Pod" {
		return nil
	}
	return owner
}
