package migrationcontroller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestPrune ends the seventh migration of a guest: the first two go, with the pods that they have left behind.
func TestPrune(t *testing.T) {
	moved := func(n int, phase v1.VirtualMachineInstanceMigrationPhase) *v1.VirtualMachineInstanceMigration {
		return &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("m%d", n), CreationTimestamp: metav1.NewTime(now.Add(time.Duration(n) * time.Minute)),
			},
			Status: v1.VirtualMachineInstanceMigrationStatus{
				Phase: phase,
				MigrationState: &v1.VirtualMachineInstanceMigrationState{
					SourcePod: fmt.Sprintf("pod%d", n), TargetPod: fmt.Sprintf("pod%d", n+1),
				},
			},
		}
	}
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
	}
	ended := []*v1.VirtualMachineInstanceMigration{
		moved(6, v1.MigrationSucceeded), moved(0, v1.MigrationSucceeded), moved(1, v1.MigrationFailed),
		moved(2, v1.MigrationSucceeded),
		moved(3, v1.MigrationSucceeded), moved(4, v1.MigrationFailed), moved(5, v1.MigrationSucceeded),
	}
	going := moved(-1, v1.MigrationFailed)
	going.DeletionTimestamp = &metav1.Time{Time: now}
	left := []*corev1.Pod{
		pod("pod0", corev1.PodSucceeded), pod("pod2", corev1.PodFailed), pod("pod3", corev1.PodSucceeded),
	}
	for name, c := range map[string]struct {
		siblings []*v1.VirtualMachineInstanceMigration
		pods     []*corev1.Pod
		want     []string
	}{
		"alone":         {ended[:1], left, nil},
		"five":          {ended[:5], left, nil},
		"one goes":      {append(ended[:5:5], going), left, nil},
		"one runs":      {append(ended[:5:5], moved(9, v1.MigrationRunning)), left, nil},
		"seven":         {ended, left, []string{"m0", "m1", "pod0", "pod2"}},
		"pods are gone": {ended, nil, []string{"m0", "m1"}},
		"a pod runs":    {ended, []*corev1.Pod{pod("pod0", corev1.PodRunning)}, []string{"m0", "m1"}},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(situation(func(view *View) {
				view.Migration.Status.Phase, view.Siblings, view.Ended = v1.MigrationSucceeded, c.siblings, c.pods
			}))
			var got []string
			for _, m := range step.Prune {
				got = append(got, m.Name)
			}
			for _, pod := range step.PrunePods {
				got = append(got, pod.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}
