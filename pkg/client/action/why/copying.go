package why

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// copying explains what disks wait for that are to be copied to other claims, and a VM that does not start because they
// were not copied when its guest ended.
func (e *explanation) copying() {
	if e.VM != nil {
		c := conditions.With(e.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired, corev1.ConditionTrue)
		if c != nil {
			// Before that the VM is stopped: it does not start until this is done.
			e.add(rankIntent, LayerVolumes, e.vmObject(), Broken, string(c.Type), "the VM does not start: "+c.Message,
				e.revert()...)
		}
	}
	if e.VMI == nil || !volumemigration.Pending(e.VMI) {
		return
	}
	if c := conditions.With(e.VMI.Status.Conditions, volumemigration.Condition, corev1.ConditionTrue); c != nil {
		fixes := e.otherClaims()
		if volumemigration.Waiting(e.VMI) == nil { // the claims are there: it is the migration that is to be explained
			fixes = []string{
				"virtctl why " + e.Name + e.flag() + " --migrate",
				"name the old claims in the VM's volumes again to cancel it",
			}
		}
		e.add(rankProgress, LayerVolumes, e.vmiObject(), Waiting, c.Reason, copiesFirst+c.Message, fixes...)
	}
}

// copiesFirst begins the explanation of a guest whose volumes name other claims than it uses.
const copiesFirst = "the guest's disks are to be copied to other claims: "

// otherClaims returns what helps disks that wait for the claims to which they are to be copied.
func (e *explanation) otherClaims() []string {
	var names []string
	for _, m := range volumemigration.Moves(e.VMI) {
		names = append(names, m.To)
	}
	return []string{
		"kubectl get pvc -n " + e.Namespace + " " + strings.Join(names, " ") + " (each must exist, be large enough, " +
			"and be used by no other pod)",
		"name the old claims in the VM's volumes again to cancel it: kubectl edit vm " + e.Name + e.flag(),
	}
}

// revert returns the commands that give a VM the claims again from which its disks were not copied.
func (e *explanation) revert() []string {
	edit := "kubectl edit vm " + e.Name + e.flag()
	patch := volumemigration.Revert(e.VM)
	if patch == "" {
		return []string{edit}
	}
	return []string{"kubectl patch vm " + e.Name + e.flag() + " --type json -p '" + patch + "'", edit}
}
