package rbac

import "github.com/virtkit/virtkit/pkg/names"

// unused are rights that a run need not use, each with the reason why it is granted all the same.
var unused = map[Right]string{
	{names.VirtController, "kubevirt.io", "virtualmachines/finalizers", "update", false}:         blockOwnerDeletion,
	{names.VirtController, "kubevirt.io", "virtualmachineinstances/finalizers", "update", false}: blockOwnerDeletion,
}

const blockOwnerDeletion = "checked only where the admission plugin OwnerReferencesPermissionEnforcement is on, as on OpenShift"
