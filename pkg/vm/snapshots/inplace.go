package snapshots

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Backups returns the volumes of a content that are restored: all but memory dumps.
func Backups(content *v1beta1.VirtualMachineSnapshotContent) []v1beta1.VolumeBackup {
	source := content.Spec.Source.VirtualMachine
	if source == nil || source.Spec.Template == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(content.Spec.VolumeBackups), func(b v1beta1.VolumeBackup) bool {
		return slices.ContainsFunc(source.Spec.Template.Spec.Volumes, func(o v1.Volume) bool {
			return o.Name == b.VolumeName && o.MemoryDump != nil
		})
	})
}

// InUse returns why a restore to a VM in place does not replace a claim: others use it. It is "" for a claim that
// nobody uses, or the VM alone. lasting is false when only pods use it, which end by themselves.
func InUse(namespace, claim, vm string, users claims.Users) (trouble string, lasting bool) {
	others := users.Others(claim, vm)
	if len(others) == 0 {
		return "", false
	}
	lasting = claims.Keeps(others)
	way := "wait until that has ended"
	if lasting {
		way = "unplug it there first"
	}
	return fmt.Sprintf("PVC %s/%s is used by %s, and volumeRestorePolicy InPlace would delete it; choose another "+
		"volumeRestorePolicy, or %s", namespace, claim, named(others), way), lasting
}

// named returns users for a sentence.
func named(users []claims.User) string {
	out := make([]string, 0, len(users))
	for _, o := range users {
		if o.Kind == "" {
			out = append(out, "VM "+o.Name)
		} else {
			out = append(out, o.String())
		}
	}
	return strings.Join(out, ", ")
}

// KeptBy returns the VMs and VMIs other than a VM, and their pods, that use a claim, for a sentence. It is "" when none
// does: a pod that is no VM's ends by itself, and the cluster keeps the claim until then.
func KeptBy(claim, vm string, users claims.Users) string {
	others := users.Others(claim, vm)
	if !claims.Keeps(others) {
		return ""
	}
	return named(others)
}
