package rbac

import (
	"strings"

	"github.com/virtkit/virtkit/pkg/names"
)

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

	{names.VirtController, "route.openshift.io", "routes", "list", true}:  routes,
	{names.VirtController, "route.openshift.io", "routes", "watch", true}: routes,

	{names.VirtController, "", "persistentvolumeclaims/finalizers", "update", false}: blockOwnerDeletion,

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

	{names.VirtController, "", "events", "patch", false}: repeatedEvent,
	{names.VirtHandler, "", "events", "patch", false}:    repeatedEvent,
}

const (
	blockOwnerDeletion = "checked only where the admission plugin OwnerReferencesPermissionEnforcement is on, as on " +
		"OpenShift"
	storageProfiles = "read where CDI is"
	routes          = "read where OpenShift's Routes are"
	rotation        = "certificates are renewed after months"
	staleCache      = "looked up when creating it collides with what the cache has not seen yet"
	signing         = "asked for by the API server when a certificate signing request is approved or signed"
	keptDisk        = "a disk that outlives its VM because its pool keeps what it scales in is taken from the VM"
	snapshots       = "used by snapshots, restores and clones, and by what a run need not do with them"
	repeatedEvent   = "an event that is seen again is counted instead of created"
)

// snapshotRights are the verbs of virt-controller on what snapshots, restores and clones are made of. They are used
// where volumes can be snapshotted.
var snapshotRights = []struct{ group, resource, verbs, why string }{
	{"snapshot.kubevirt.io", "virtualmachinesnapshots", "get create patch delete", snapshots},
	{"snapshot.kubevirt.io", "virtualmachinesnapshots/status", "patch", snapshots},
	{"snapshot.kubevirt.io", "virtualmachinesnapshots/finalizers", "update", blockOwnerDeletion},
	{"snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "get create patch delete", snapshots},
	{"snapshot.kubevirt.io", "virtualmachinesnapshotcontents/status", "patch", snapshots},
	{"snapshot.kubevirt.io", "virtualmachinesnapshotcontents/finalizers", "update", blockOwnerDeletion},
	{"snapshot.kubevirt.io", "virtualmachinerestores", "get create patch delete", snapshots},
	{"snapshot.kubevirt.io", "virtualmachinerestores/status", "patch", snapshots},
	{"clone.kubevirt.io", "virtualmachineclones", "patch delete", snapshots},
	{"clone.kubevirt.io", "virtualmachineclones/status", "patch", snapshots},
	{"clone.kubevirt.io", "virtualmachineclones/finalizers", "update", blockOwnerDeletion},
	{"snapshot.storage.k8s.io", "volumesnapshots", "get list watch create delete", snapshots},
	{"snapshot.storage.k8s.io", "volumesnapshotcontents", "get create delete", snapshots},
	{"snapshot.storage.k8s.io", "volumesnapshotclasses", "list watch", snapshots},
	{"export.kubevirt.io", "virtualmachineexports", "delete", "an export is deleted when its time is over"},
	{"export.kubevirt.io", "virtualmachineexports/finalizers", "update", blockOwnerDeletion},
	{"subresources.kubevirt.io", "virtualmachineinstances/freeze", "update", snapshots},
	{"subresources.kubevirt.io", "virtualmachineinstances/unfreeze", "update", snapshots},
	{"", "persistentvolumeclaims", "get", snapshots},
	{"apps", "controllerrevisions", "patch", snapshots},
	{"storage.k8s.io", "storageclasses", "get", snapshots},
	{"cdi.kubevirt.io", "datavolumes", "delete", snapshots},
	{"cdi.kubevirt.io", "storageprofiles", "list watch", storageProfiles},
}

func init() {
	for _, r := range snapshotRights {
		for verb := range strings.FieldsSeq(r.verbs) {
			unused[Right{names.VirtController, r.group, r.resource, verb, false}] = r.why
		}
	}
	unused[Right{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinesnapshots", "get", false}] = snapshots
	unused[Right{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", "get", false}] = snapshots
	unused[Right{names.VirtAPI, "snapshot.kubevirt.io", "virtualmachinerestores", "list", false}] = snapshots
}
