//go:build integration

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
)

// These tests have no policies (tests/security has): what a tenant makes is let in, and must not be trusted.

// impostor makes a pod that says of itself all that a launcher does, as a tenant would, and binds it.
func (t *test) impostor(name string, instance *v1.VirtualMachineInstance, node string, change ...func(*corev1.Pod),
) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: name,
			Labels: map[string]string{v1.AppLabel: names.VirtLauncher, v1.CreatedByLabel: string(instance.UID)},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(instance, v1.VirtualMachineInstanceGroupVersionKind),
			},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: names.ContainerCompute, Image: "registry.example/evil:1"}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	t.must(cluster.Client.Create(t.ctx, pod))
	// virt-controller may have been faster than the scheduler.
	if err := cluster.Bind(t.ctx, pod, node); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.must(err)
	}
	return pod
}

// waitDeleted plays the kubelet: it waits for a pod's deletion, says that it has ended and lets it go.
func (t *test) waitDeleted(pod *corev1.Pod) {
	t.Helper()
	t.eventually("pod "+pod.Name+" deleted", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(pod), pod)
		return apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
	if pod.DeletionTimestamp != nil {
		t.must(client.IgnoreNotFound(cluster.RemovePod(t.ctx, pod))) // one that was never bound goes at once
	}
}

// A VMI that waits for a claim leaves the time to make the pod that it is going to have. It was scheduled to that
// pod. What a virt-controller made that was killed before it could record it looks the same.
func TestImpostor(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyAlways, "late")
	waiting := t.waitPhase(v1.Pending)
	name := vmicontroller.PodName(waiting)
	fake := t.impostor(name, waiting, "node01")
	t.waitDeleted(fake)
	squatter := t.impostor(name, waiting, "node01", func(pod *corev1.Pod) {
		pod.Labels, pod.OwnerReferences = nil, nil
	})

	t.must(cluster.Client.Create(t.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "late"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
			},
		},
	}))
	running, pod := t.run("node01")
	if pod.UID == fake.UID || pod.UID == squatter.UID || pod.Name == name {
		t.Errorf("the guest is in pod %s", pod.Name)
	}
	if _, recorded := running.Status.ActivePods[pod.UID]; !recorded || len(running.Status.ActivePods) != 1 {
		t.Errorf("activePods %v, want pod %s", running.Status.ActivePods, pod.UID)
	}
	// Beside a guest that runs it is not taken either, and a finalizer of its own does not hold the VMI.
	holder := t.impostor("beside", running, "node01", func(pod *corev1.Pod) {
		pod.Finalizers = []string{"example.com/never"}
	})
	t.eventually("deletion", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(holder), holder)
		return err == nil && holder.DeletionTimestamp != nil, err
	})
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "demo"}}
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.waitDeleted(pod)
	t.waitGone(running)
	t.must(cluster.Client.Patch(t.ctx, holder,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
}

// A migration's target is a pod that was made for it: a guest's memory is sent there. A pod that has its name fails
// nothing.
func TestImpostorOfTarget(tt *testing.T) {
	t := newTest(tt)
	if _, err := cluster.CreateNode(t.ctx, "node-there"); err != nil {
		t.Fatal(err)
	}
	t.createVM(v1.RunStrategyAlways)
	running, source := t.run("node01")
	squat := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "waits"},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "demo"},
	}
	first := t.createMigration("first")
	target := t.placeTarget(first, "node-there")
	t.must(cluster.Client.Create(t.ctx, squat))
	t.waitMigration(squat, v1.MigrationPending)
	fake := t.impostor(migrationcontroller.PodName(squat, running), running, "node-there", func(pod *corev1.Pod) {
		pod.Labels[v1.MigrationJobLabel] = string(squat.UID)
	})
	t.waitDeleted(fake)
	taken := t.impostor(migrationcontroller.PodName(squat, running), running, "node-there", func(pod *corev1.Pod) {
		pod.Labels, pod.OwnerReferences = nil, nil
	})
	t.must(cluster.Client.Delete(t.ctx, first)) // cancelled
	t.endPod(target)
	t.waitGone(first)

	real := t.placeTarget(squat, "node-there")
	if real.UID == fake.UID || real.Name == taken.Name {
		t.Errorf("the target is pod %s", real.Name)
	}
	instance := t.waitVMI("told", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.MigrationState != nil && vmi.Status.MigrationState.MigrationUID == squat.UID
	})
	if ms := instance.Status.MigrationState; ms.TargetPod != real.Name || ms.SourcePod != source.Name {
		t.Errorf("migrationState %+v", ms)
	}
	for uid := range instance.Status.ActivePods {
		if uid != source.UID && uid != real.UID {
			t.Errorf("activePods %v, want %s and %s", instance.Status.ActivePods, source.UID, real.UID)
		}
	}
}
