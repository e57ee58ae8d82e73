package migrationcontroller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// keepEnded is the number of a VMI's finished migrations that are left for people to read; KubeVirt's.
const keepEnded = 5

// surplus returns the finished migrations of a VMI that newer ones displace.
func surplus(all []*v1.VirtualMachineInstanceMigration) []*v1.VirtualMachineInstanceMigration {
	var ended []*v1.VirtualMachineInstanceMigration
	for _, m := range all {
		if m.IsFinal() && m.DeletionTimestamp == nil {
			ended = append(ended, m)
		}
	}
	if len(ended) <= keepEnded {
		return nil
	}
	slices.SortFunc(ended, migrations.ByAge)
	return ended[:len(ended)-keepEnded]
}

// leftBy returns the pods of a VMI that migrations have left behind: sources that the guest left, and targets that it
// did not reach. None of them runs the guest.
func leftBy(ended []*v1.VirtualMachineInstanceMigration, pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, m := range ended {
		state := m.Status.MigrationState
		if state == nil {
			continue
		}
		name := state.SourcePod
		if m.Status.Phase == v1.MigrationFailed {
			name = state.TargetPod
		}
		i := slices.IndexFunc(pods,
			func(pod *corev1.Pod) bool {
				return pod.Name == name && life.PodEnded(pod) && pod.DeletionTimestamp == nil
			})
		if i >= 0 && !slices.Contains(out, pods[i]) {
			out = append(out, pods[i])
		}
	}
	return out
}

// prune deletes the migrations that newer ones displace, and what they left behind.
func (r *Reconciler) prune(ctx context.Context, newer *v1.VirtualMachineInstanceMigration, step *Step) error {
	for _, pod := range step.PrunePods {
		if _, err := r.writes.Delete(ctx, pod); err != nil {
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
	}
	for _, m := range step.Prune {
		if _, err := r.writes.Delete(ctx, m); err != nil {
			return fmt.Errorf("delete migration %s: %w", m.Name, err)
		}
	}
	return nil
}
