package rbac

import "github.com/virtkit/virtkit/pkg/names"

// unused are rights that a run need not use, each with the reason why it is granted all the same.
var unused = map[Right]string{
	{
		names.VirtController, "kubevirt.io", "virtualmachines/finalizers", "update",
		false,
	}: blockOwnerDeletion,
	{
		names.VirtController, "kubevirt.io", "virtualmachineinstances/finalizers", "update",
		false,
	}: blockOwnerDeletion,
	{
		names.VirtController, "kubevirt.io", "virtualmachineinstancereplicasets/finalizers", "update",
		false,
	}: blockOwnerDeletion,

	{names.VirtController, "pool.kubevirt.io", "virtualmachinepools/finalizers", "update", false}: blockOwnerDeletion,
	{names.VirtController, "kubevirt.io", "virtualmachines", "get", false}:                        staleCache,

	{names.VirtController, "", "secrets", "patch", true}:    rotation,
	{names.VirtController, "", "configmaps", "patch", true}: rotation,

	{names.VirtController, "", "pods", "get", false}:                               staleCache,
	{names.VirtController, "kubevirt.io", "virtualmachineinstances", "get", false}: staleCache,

	{names.VirtController, "kubevirt.io", "virtualmachineinstancereplicasets", "get", false}: "asked for before a " +
		"VMI that nobody owns is adopted",

	{names.VirtController, "policy", "poddisruptionbudgets", "delete", false}: "a running VMI need not be kept any " +
		"more: the cluster has another eviction strategy now, or it cannot move any more",

	{names.VirtController, "", "nodes", "patch", false}: "a node that is lost for minutes is marked as taking no VMs",

	{names.VirtController, "", "nodes", "get", false}: "the heartbeat of a lost node, and of those that vouch for " +
		"it, is asked for before its guests start elsewhere",

	{names.VirtHandler, "", "nodes", "list", false}: "asked for where guests end without heartbeats, which are those " +
		"that start elsewhere",

	{names.VirtController, "cdi.kubevirt.io", "datavolumes/source", "create", false}: "CDI asks the API server " +
		"whether virt-controller has it before it clones for a VM",

	{names.VirtController, "cdi.kubevirt.io", "datavolumes", "patch", false}: keptDisk,
	{names.VirtController, "", "persistentvolumeclaims", "patch", false}:     keptDisk,

	{names.VirtController, "certificates.k8s.io", "signers", "approve", false}: signing,
	{names.VirtController, "certificates.k8s.io", "signers", "sign", false}:    signing,

	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots/finalizers", "update", false}:        blockOwnerDeletion,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents/finalizers", "update", false}: blockOwnerDeletion,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots", "get", false}:                      snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots", "patch", false}:                    snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "create", false}:            snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "patch", false}:             snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "delete", false}:            snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots/status", "patch", false}:             snapshotted,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents/status", "patch", false}:      snapshotted,
	{names.VirtController, "", "persistentvolumeclaims", "get", false}:                                           snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshots", "get", false}:                           snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshots", "list", false}:                          snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshots", "watch", false}:                         snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshots", "create", false}:                        snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshotclasses", "list", false}:                    snapshotted,
	{names.VirtController, "snapshot.storage.k8s.io", "volumesnapshotclasses", "watch", false}:                   snapshotted,
	{names.VirtController, "subresources.kubevirt.io", "virtualmachineinstances/freeze", "update", false}:        snapshotted,
	{names.VirtController, "subresources.kubevirt.io", "virtualmachineinstances/unfreeze", "update", false}:      snapshotted,
	{names.VirtController, "cdi.kubevirt.io", "storageprofiles", "list", false}:                                  "CDI's StorageProfiles are read where they are",
	{names.VirtController, "cdi.kubevirt.io", "storageprofiles", "watch", false}:                                 "CDI's StorageProfiles are read where they are",
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinerestores", "patch", false}:                     restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinerestores/status", "patch", false}:              restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinerestores", "get", false}:                       restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinerestores", "create", false}:                    restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinerestores", "delete", false}:                    restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots", "create", false}:                   restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshots", "delete", false}:                   restoring,
	{names.VirtController, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "get", false}:               restoring,
	{names.VirtController, "clone.kubevirt.io", "virtualmachineclones", "delete", false}:                         restoring,
	{names.VirtController, "clone.kubevirt.io", "virtualmachineclones/status", "patch", false}:                   restoring,
	{names.VirtController, "clone.kubevirt.io", "virtualmachineclones/finalizers", "update", false}:              blockOwnerDeletion,
	{names.VirtController, "storage.k8s.io", "storageclasses", "get", false}:                                     restoring,
	{names.VirtController, "cdi.kubevirt.io", "datavolumes", "delete", false}:                                    restoring,
	{names.VirtController, "apps", "controllerrevisions", "patch", false}:                                        restoring,
	{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinesnapshots", "get", false}:                             restoring,
	{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "get", false}:                      restoring,
	{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinerestores", "list", false}:                             restoring,

	{names.VirtController, "", "events", "patch", false}: repeatedEvent,
	{names.VirtHandler, "", "events", "patch", false}:    repeatedEvent,
}

const (
	blockOwnerDeletion = "checked only where the admission plugin OwnerReferencesPermissionEnforcement is on, as on " +
		"OpenShift"
	snapshotted   = "the cluster of the ordinary run has no VolumeSnapshots, and none is made of a VM"
	rotation      = "certificates are renewed after months"
	staleCache    = "looked up when creating it collides with what the cache has not seen yet"
	signing       = "asked for by the API server when a certificate signing request is approved or signed"
	keptDisk      = "a disk that outlives its VM because its pool keeps what it scales in is taken from the VM"
	restoring     = "snapshots are restored where there is a CSI driver that makes them"
	repeatedEvent = "an event that is seen again is counted instead of created"
)
