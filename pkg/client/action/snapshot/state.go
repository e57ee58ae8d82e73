package snapshot

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Anew returns the volumes of a VM that are no claims, so that no snapshot has them: they are made anew of the spec.
func Anew(vm *v1.VirtualMachine) []string {
	if vm.Spec.Template == nil {
		return nil
	}
	var out []string
	for i := range vm.Spec.Template.Spec.Volumes {
		if volume := &vm.Spec.Template.Spec.Volumes[i]; vmsnapshots.Claim(volume) == "" {
			out = append(out, volume.Name)
		}
	}
	return out
}

// CheckWhole names the volumes of a VM that cannot be snapshotted: in a warning where a partial snapshot will do, else
// in an error, which ends with the remedy. A snapshot leaves out no claim that waits for the start of the VM: for those
// there is an error, whatever will do.
func CheckWhole(vm *v1.VirtualMachine, partial bool, remedy string) (warning string, err error) {
	if text := vmsnapshots.UnboundText(vm); text != "" {
		return "", fmt.Errorf("%s; start it with `virtctl start %s -n %s`", text, vm.Name, vm.Namespace)
	}
	if text := vmsnapshots.LeftOutText(vm); text != "" && !partial {
		return "", fmt.Errorf("%s; %s", text, remedy)
	}
	return vmsnapshots.LeftOutWarning(vm), nil
}

// Phase returns the phase of a snapshot for a table.
func Phase(s *snapshotv1beta1.VirtualMachineSnapshot) string {
	if s.DeletionTimestamp != nil {
		return string(snapshotv1beta1.Deleting)
	}
	if s.Status == nil || s.Status.Phase == snapshotv1beta1.PhaseUnset {
		return "Pending"
	}
	return string(s.Status.Phase)
}

// Trouble returns a snapshot's error, empty for none.
func Trouble(s *snapshotv1beta1.VirtualMachineSnapshot) string { return vmsnapshots.Trouble(s) }

// Progress returns the progress of a snapshot that is not ready, empty for one that is, or that failed.
func Progress(s *snapshotv1beta1.VirtualMachineSnapshot) string {
	if s.Status == nil || vmsnapshots.Ready(s) || s.Status.Phase == snapshotv1beta1.Failed {
		return ""
	}
	return progressing(s.Status.Conditions)
}

// failure returns the message of the condition Failure, empty unless it is true.
func failure(conditions []snapshotv1beta1.Condition) string {
	for _, c := range conditions {
		if c.Type == snapshotv1beta1.ConditionFailure && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason, "no reason is given")
		}
	}
	return ""
}

// progressing returns the message of the condition Progressing, empty without one.
func progressing(conditions []snapshotv1beta1.Condition) string {
	for _, c := range conditions {
		if c.Type == snapshotv1beta1.ConditionProgressing {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// Stuck returns why a restore goes no further, although virt-controller tries again; empty when it does, or has ended.
func Stuck(r *snapshotv1beta1.VirtualMachineRestore) string {
	if done, err := Restored(r); done || err != nil || r.Status == nil {
		return ""
	}
	for _, c := range r.Status.Conditions {
		if c.Type == snapshotv1beta1.ConditionProgressing && c.Status == corev1.ConditionFalse {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// Stage returns in a few words how far a snapshot is.
func Stage(s *snapshotv1beta1.VirtualMachineSnapshot) string {
	stage := Phase(s)
	if s.Status == nil {
		return stage
	}
	if said := cmp.Or(Trouble(s), progressing(s.Status.Conditions)); said != "" {
		stage += ": " + said
	}
	return stage
}

// Indications returns what the guest did while the snapshot was taken, and so how consistent the snapshot is.
func Indications(s *snapshotv1beta1.VirtualMachineSnapshot) []string {
	var out []string
	if s.Status == nil {
		return nil
	}
	for _, i := range s.Status.SourceIndications {
		out = append(out, string(i.Indication))
	}
	if out == nil {
		for _, i := range s.Status.Indications { //nolint:staticcheck // of servers that fill in no other
			out = append(out, string(i))
		}
	}
	return out
}

// Taken holds when a snapshot can be restored; that it failed is an error.
func Taken(s *snapshotv1beta1.VirtualMachineSnapshot) (bool, error) {
	if s.Status != nil && s.Status.Phase == snapshotv1beta1.Failed {
		return false, fmt.Errorf("snapshot %s/%s failed: %s", s.Namespace, s.Name,
			cmp.Or(Trouble(s), "no reason is given"))
	}
	return vmsnapshots.Ready(s) && s.Status.Phase != snapshotv1beta1.InProgress, nil
}

// Wait waits until a snapshot can be restored, and reports each of its stages. A deadline of ctx is an
// action.ErrTimeout.
func Wait(ctx context.Context, c *client.Client, namespace, name string, report func(stage string)) (
	*snapshotv1beta1.VirtualMachineSnapshot, error,
) {
	source, err := c.Source(snapshotv1beta1.SchemeGroupVersion, client.Snapshots, namespace)
	if err != nil {
		return nil, err
	}
	progress := wait.Progress[*snapshotv1beta1.VirtualMachineSnapshot]{Stage: Stage, Done: Taken, Report: report}
	s, err := progress.Wait(ctx, source, "snapshot", namespace, name)
	return s, errorOf(err)
}
