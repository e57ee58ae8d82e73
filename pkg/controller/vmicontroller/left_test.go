package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Of the pods that a guest has left those stay which have completed.
func TestLeave(t *testing.T) {
	pod := func(name, node string, age time.Duration, phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
		return testPod(append([]func(*corev1.Pod){func(pod *corev1.Pod) {
			pod.Name, pod.UID, pod.Spec.NodeName, pod.Status.Phase = name, types.UID(name), node, phase
			pod.CreationTimestamp = at(age)
			launcherOfVMI(pod)
		}}, change...)...)
	}
	moved := func(ago time.Duration, change ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		return testVMI(t, v1.Running, append([]func(*v1.VirtualMachineInstance){func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.NodeName = "node02"
			vmi.Status.ActivePods = map[types.UID]string{"b": "node02"}
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
				SourcePod: "a", TargetPod: "b", Completed: true, EndTimestamp: new(at(ago)),
			}
		}}, change...)...)
	}
	underWay := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.NodeName, vmi.Status.ActivePods = "node01", map[types.UID]string{"a": "node01", "b": "node02"}
		vmi.Status.MigrationState.Completed, vmi.Status.MigrationState.EndTimestamp = false, nil
	}
	again := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.ActivePods["c"] = "node01"
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourcePod: "b", TargetPod: "c"}
	}
	failed := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			SourcePod: "b", TargetPod: "a", Completed: true, Failed: true, EndTimestamp: new(at(time.Minute)),
		}
	}
	copied := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "new")}
		vmi.Annotations = map[string]string{
			volumemigration.MovedAnnotation: `{"data":{"name":"data","persistentVolumeClaim":{"claimName":"old"}}}`,
		}
	}
	copying := func(vmi *v1.VirtualMachineInstance) {
		copied(vmi)
		vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "data"}}
	}
	sameClaims := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{names.AnnotationClaims: volumemigration.Fingerprint(
			&v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{*volumemigration.OnClaim("data", "new")}})}
	}
	unknown := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Unknown }
	theirs := func(pod *corev1.Pod) { pod.Labels = nil }
	guests := pod("b", "node02", time.Minute, corev1.PodRunning)
	before := func(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod("a", "node01", time.Hour, phase, change...)
	}
	for _, c := range []struct {
		name  string
		vmi   *v1.VirtualMachineInstance
		other *corev1.Pod
		gone  bool
		again time.Duration
	}{
		{"has completed", moved(time.Minute), before(corev1.PodSucceeded), false, 0},
		{"has completed, with the old claims", moved(time.Minute, copied), before(corev1.PodSucceeded), true, 0},
		{"has completed, with the same", moved(time.Minute, copied), before(corev1.PodSucceeded, sameClaims), false, 0},
		{"has completed, and others are copied", moved(time.Minute, copying), before(corev1.PodSucceeded), false, 0},
		{"has to end, with the old claims", moved(0, copied), before(corev1.PodRunning), false, 30 * time.Second},
		{"was killed", moved(time.Second), before(corev1.PodFailed), true, 0},
		{"was killed, and goes", moved(time.Second), before(corev1.PodFailed, going), false, 0},
		{"was killed, and the guest has moved on", moved(time.Second, failed), before(corev1.PodFailed), true, 0},
		{"was killed, and the guest moves again", moved(time.Second, again), before(corev1.PodFailed), false, 0},
		{"has to end yet", moved(10 * time.Second), before(corev1.PodRunning), false, 20 * time.Second},
		{"does not end", moved(time.Minute), before(corev1.PodRunning), true, 0},
		{"is killed while the guest moves", moved(0, underWay), before(corev1.PodFailed), false, 15 * time.Second},
		{"its migration has failed", moved(0, failed), before(corev1.PodRunning), false, 0},
		{"made for the next migration", moved(time.Minute), pod("c", "node01", 0, corev1.PodFailed), false, 0},
		{"nobody knows of the guest", moved(time.Minute, unknown), before(corev1.PodFailed), false, 0},
		{"somebody else's", moved(time.Minute), before(corev1.PodFailed, theirs), false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			step := Next(View{VMI: c.vmi, Pods: []*corev1.Pod{c.other, guests}, Now: now})
			if gone := len(step.DeletePods) == 1 && step.DeletePods[0] == c.other; gone != c.gone ||
				len(step.DeletePods) > 1 || step.RequeueAfter != c.again {
				t.Errorf("deletes %d, again in %s", len(step.DeletePods), step.RequeueAfter)
			}
		})
	}
}
