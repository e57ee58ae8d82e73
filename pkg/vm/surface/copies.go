package surface

import (
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"kubevirt.io/api/snapshot/v1beta1"
)

// copyKinds returns the tables of the kinds that make copies of VMs and their volumes. They have all fields of the API;
// virt-api checks their values (pkg/virtapi), and virt-controller honours them.
func copyKinds() []Kind {
	return []Kind{
		{
			Name: "VirtualMachineSnapshot", Fields: snapshotFields, plain: true,
			prototype: v1beta1.VirtualMachineSnapshotSpec{},
			rest: "Of `snapshot.kubevirt.io`; docs/snapshots.md. With the annotation " +
				"`virtkit.io/include-memory: \"true\"`, which virtkit adds to KubeVirt's API, the snapshot has the " +
				"guest's memory, too. The spec cannot be changed.",
		},
		{
			Name: "VirtualMachineSnapshotContent", Fields: contentFields, plain: true,
			prototype: v1beta1.VirtualMachineSnapshotContentSpec{},
			rest:      "Of `snapshot.kubevirt.io`. virt-controller makes it for a snapshot; users read it.",
		},
		{
			Name: "VirtualMachineRestore", Fields: restoreFields, plain: true,
			prototype: v1beta1.VirtualMachineRestoreSpec{},
			rest: "Of `snapshot.kubevirt.io`; docs/snapshots.md. virtkit adds the annotations " +
				"`restore.virtkit.io/keep-replaced: \"true\"`, which keeps what is replaced, and " +
				"`restore.virtkit.io/undo`, the name of a restore that is taken back. The spec cannot be changed.",
		},
		{
			Name: "VirtualMachineClone", Fields: cloneFields, plain: true,
			prototype: clonev1beta1.VirtualMachineCloneSpec{},
			rest: "Of `clone.kubevirt.io`; docs/snapshots.md. virtkit adds the annotations " +
				"`virtkit.io/keep-identity`, `virtkit.io/source-namespace` and `virtkit.io/size`.",
		},
		{
			Name: "VirtualMachineExport", Fields: exportFields, plain: true,
			prototype: exportv1beta1.VirtualMachineExportSpec{},
			rest:      "Of `export.kubevirt.io`; docs/export.md. The spec cannot be changed.",
		},
	}
}

var snapshotFields = []Field{
	{Path: "source.apiGroup", Effect: Copy, Only: []string{"kubevirt.io"}},
	{Path: "source.kind", Effect: Copy, Only: []string{"VirtualMachine"}},
	{Path: "source.name", Effect: Copy},
	{
		Path: "deletionPolicy", Effect: Copy, Only: []string{
			string(v1beta1.VirtualMachineSnapshotContentDelete), string(v1beta1.VirtualMachineSnapshotContentRetain),
		},
		Note: "What becomes of the content when the snapshot is deleted; Delete unless set.",
	},
	{Path: "failureDeadline", Effect: Copy, Note: "5m unless set."},
}

var contentFields = []Field{
	{Path: "virtualMachineSnapshotName", Effect: Copy, Note: "The snapshot that it is of."},
	{Path: "source.virtualMachine", Effect: Copy, Note: "The VM as it was."},
	{Path: "volumeBackups", Effect: Copy, Note: "Each volume with its claim as it was, and its VolumeSnapshot."},
}

var restoreFields = []Field{
	{Path: "target.apiGroup", Effect: Copy, Only: []string{"kubevirt.io"}},
	{Path: "target.kind", Effect: Copy, Only: []string{"VirtualMachine"}},
	{Path: "target.name", Effect: Copy, Note: "Of the snapshot's VM, or of one that the restore makes."},
	{Path: "virtualMachineSnapshotName", Effect: Copy, Note: "The snapshot, in the same namespace."},
	{
		Path: "targetReadinessPolicy", Effect: Life, Only: []string{
			string(v1beta1.VirtualMachineRestoreStopTarget),
			string(v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail),
			string(v1beta1.VirtualMachineRestoreFailImmediate), string(v1beta1.VirtualMachineRestoreWaitEventually),
		},
		Note: "What is done when the target runs; WaitGracePeriod, five minutes, unless set.",
	},
	{
		Path: "volumeRestorePolicy", Effect: Copy, Only: []string{
			string(v1beta1.VolumeRestorePolicyRandomizeNames), string(v1beta1.VolumeRestorePolicyInPlace),
			string(v1beta1.VolumeRestorePolicyPrefixTargetName),
		},
		Note: "The names of the restored claims; RandomizeNames unless set.",
	},
	{
		Path: "volumeOwnershipPolicy", Effect: Copy, Only: []string{
			string(v1beta1.VolumeOwnershipPolicyVm), string(v1beta1.VolumeOwnershipPolicyNone),
		},
		Note: "What owns the restored claims; Vm unless set.",
	},
	{Path: "volumeRestoreOverrides.volumeName", Effect: Copy, Note: "The volume whose claim the override is of."},
	{Path: "volumeRestoreOverrides.restoreName", Effect: Copy, Note: "The claim's name."},
	{Path: "volumeRestoreOverrides.labels", Effect: Copy, Note: "Labels that the claim gets besides."},
	{Path: "volumeRestoreOverrides.annotations", Effect: Copy, Note: "Annotations that the claim gets besides."},
	{Path: "patches", Effect: Copy, Note: "Below `/spec/`, `/metadata/labels/` and `/metadata/annotations/`."},
}

var cloneFields = []Field{
	{Path: "source.apiGroup", Effect: Copy},
	{
		Path: "source.kind", Effect: Copy,
		Only: []string{"VirtualMachine", "VirtualMachineSnapshot", "PersistentVolumeClaim"},
		Note: "A claim with an image, whose target is a claim, is virtkit's; docs/cloud-images.md.",
	},
	{Path: "source.name", Effect: Copy},
	{Path: "target.apiGroup", Effect: Copy},
	{Path: "target.kind", Effect: Copy, Only: []string{"VirtualMachine", "PersistentVolumeClaim"}},
	{Path: "target.name", Effect: Copy, Note: "A random one unless set; status.targetName has it."},
	{Path: "annotationFilters", Effect: Copy, Note: "Patterns of annotations to keep, or after `!` to leave out."},
	{Path: "labelFilters", Effect: Copy, Note: "As annotationFilters."},
	{Path: "template.annotationFilters", Effect: Copy, Note: "As annotationFilters, of the VM's template."},
	{Path: "template.labelFilters", Effect: Copy, Note: "As annotationFilters, of the VM's template."},
	{Path: "newMacAddresses", Effect: Network},
	{Path: "newSMBiosSerial", Effect: Domain},
	{Path: "patches", Effect: Copy},
	{
		Path: "volumeNamePolicy", Effect: Copy, Only: []string{
			string(clonev1beta1.VolumeNamePolicyRandomizeNames), string(clonev1beta1.VolumeNamePolicyPrefixTargetName),
		},
		Note: "RandomizeNames unless set.",
	},
}

var exportFields = []Field{
	{Path: "source.apiGroup", Effect: Copy},
	{
		Path: "source.kind", Effect: Copy,
		Only: []string{"VirtualMachine", "VirtualMachineSnapshot", "PersistentVolumeClaim"},
	},
	{Path: "source.name", Effect: Copy},
	{Path: "tokenSecretRef", Effect: Copy, Note: "A Secret that virt-controller makes unless set."},
	{Path: "ttlDuration", Effect: Copy, Note: "2h unless set."},
}
