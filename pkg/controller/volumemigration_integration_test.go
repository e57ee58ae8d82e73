//go:build integration

package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
	"github.com/virtkit/virtkit/tests/cdi"
)

// TestVolumeMigration runs alone: for the others there is no CDI. The test plays the nodes, the scheduler and CDI.
func TestVolumeMigration(tt *testing.T) {
	t := newSerialTest(tt)
	t.deployComponents() // no disk is copied while they are rolled out
	t.must(cdi.Install(t.ctx, cluster.Client))
	tt.Cleanup(func() { t.must(cdi.Uninstall(context.Background(), cluster.Client)) })
	_, err := cluster.CreateNode(t.ctx, "node-copy")
	t.must(err)
	t.boundClaim("old", "csi")
	source := t.runOnClaim()

	// The claim is not there, and then another pod has it.
	t.exchange(t.volume(v1.VolumeSource{PersistentVolumeClaim: claimSource("new")}))
	t.waitCopy("VolumesChangeWaiting", "PersistentVolumeClaim new does not exist")
	t.waitVM("says what is copied", func(vm *v1.VirtualMachine) bool { return vm.Status.VolumeUpdateState != nil })
	t.noMigration("with-the-disk", `VolumesChangeWaiting, Message: volume "old": PersistentVolumeClaim new does not exist`)

	// Reverted before anything was copied; nobody plays the node, which would say that the guest cannot migrate.
	t.exchange(t.volume(v1.VolumeSource{PersistentVolumeClaim: claimSource("old")}))
	t.waitCopy(v1.VirtualMachineInstanceReasonVolumesChangeCancellation, "")
	t.noMigration("without-the-disk", "PersistentVolumeClaim old cannot be used on two nodes at once")
	t.exchange(t.volume(v1.VolumeSource{PersistentVolumeClaim: claimSource("new")}))
	t.waitCopy("VolumesChangeWaiting", "PersistentVolumeClaim new does not exist")
	web := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "web"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"},
			}}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, web))
	t.must(cluster.Bind(t.ctx, web, "node01"))
	t.boundClaim("new", "csi")
	t.waitCopy("VolumesChangeWaiting", "PersistentVolumeClaim new is used by pod web")
	t.must(cluster.SetPodStatus(t.ctx, web, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded }))
	first := t.waitVolumeMigration()
	target := t.placeTarget(first, "node-copy")
	if !mountsClaim(target, "new") || mountsClaim(target, "old") {
		t.Errorf("the target has volumes %+v", target.Spec.Volumes)
	}

	// Reverted, it is cancelled.
	t.exchange(t.volume(v1.VolumeSource{PersistentVolumeClaim: claimSource("old")}))
	t.endPod(target)
	t.waitGone(first)
	t.waitCopy(v1.VirtualMachineInstanceReasonVolumesChangeCancellation, "")
	if vm := t.waitVM("is as it was", func(vm *v1.VirtualMachine) bool {
		return vm.Status.VolumeUpdateState == nil
	}); conditions.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired) != nil {
		t.Errorf("conditions %+v", vm.Status.Conditions)
	}
	t.quiet()

	// To a DataVolume, which virt-controller makes, and CDI fills first.
	t.exchange(func(vm *v1.VirtualMachine) {
		t.volume(v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "filled"}})(vm)
		vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{
			ObjectMeta: metav1.ObjectMeta{Name: "filled"}, Spec: cdiv1.DataVolumeSpec{
				Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
				Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
				}},
			},
		}}
	})
	dv := t.dataVolume("filled")
	claim, err := cdi.Claim(t.ctx, cluster.Client, dv)
	t.must(err)
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.ImportInProgress))
	t.waitCopy("VolumesChangeWaiting", `DataVolume "filled" is ImportInProgress`)
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.Succeeded))
	t.setBound(claim, nil)
	second := t.waitVolumeMigration()
	target = t.placeTarget(second, "node-copy")
	if !mountsClaim(target, "filled") {
		t.Errorf("the target has volumes %+v", target.Spec.Volumes)
	}
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) { s.MigrationState.TargetNodeAddress = "10.0.0.2" })
	t.waitMigration(second, v1.MigrationTargetReady)
	t.exchange(func(vm *v1.VirtualMachine) {
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, volumemigration.CopiedClaimsAnnotation,
			volumemigration.ClaimsDelete)
	})
	t.claimStays("old")
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		s.MigrationState.StartTimestamp = &second.CreationTimestamp
		s.MigrationState.EndTimestamp, s.MigrationState.Completed = s.MigrationState.StartTimestamp, true
		s.NodeName = "node-copy"
		for uid := range s.ActivePods {
			if uid != target.UID {
				s.ActivePods[uid] = ""
			}
		}
		volumemigration.Land(s)
	})
	t.waitMigration(second, v1.MigrationSucceeded)
	vm := t.waitVM("has its data on the other claim", func(vm *v1.VirtualMachine) bool {
		return vm.Status.VolumeUpdateState == nil
	})
	if conditions.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired) != nil {
		t.Errorf("conditions %+v", vm.Status.Conditions)
	}
	t.claimStays("old") // its pod has it still
	t.must(cluster.SetPodStatus(t.ctx, source, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded }))
	t.eventually("claim old is deleted", func() (bool, error) {
		old := &corev1.PersistentVolumeClaim{}
		err := cluster.Client.Get(t.ctx, t.key("old"), old)
		return apierrors.IsNotFound(err) || old.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
	t.waitVMI("knows of no claim that is left", func(vmi *v1.VirtualMachineInstance) bool {
		return len(volumemigration.LeftBy(&vmi.Status)) == 0
	})
	t.claimStays("filled")
	t.quiet()
	var left v1.VirtualMachineInstanceMigrationList
	t.must(cluster.Client.List(t.ctx, &left, client.InNamespace(t.namespace)))
	if len(left.Items) != 1 {
		t.Errorf("%d migrations", len(left.Items))
	}
}

// claimStays fails if a claim is gone, or going.
func (t *test) claimStays(name string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	t.must(cluster.Client.Get(t.ctx, t.key(name), claim))
	if claim.DeletionTimestamp != nil {
		t.Errorf("claim %s is deleted", name)
	}
}

// noMigration makes a migration, which fails for a reason without a pod, and removes it.
func (t *test) noMigration(name, reason string) {
	t.Helper()
	m := t.createMigration(name)
	t.waitMigration(m, v1.MigrationFailed)
	if got := m.Status.MigrationState.FailureReason; !strings.Contains(got, reason) {
		t.Errorf("migration %s failed: %q, want %q", name, got, reason)
	}
	var pods corev1.PodList
	t.must(cluster.Client.List(t.ctx, &pods, client.InNamespace(t.namespace),
		client.MatchingLabels{v1.MigrationJobLabel: string(m.UID)}))
	if len(pods.Items) > 0 {
		t.Errorf("migration %s has pod %s", name, pods.Items[0].Name)
	}
	t.must(cluster.Client.Delete(t.ctx, m))
	t.waitGone(m)
}

func claimSource(name string) *v1.PersistentVolumeClaimVolumeSource {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = name
	return source
}

// runOnClaim has the VM demo run with a disk on claim old, and says of its guest what virt-handler would.
// It returns the guest's pod.
func (t *test) runOnClaim() *corev1.Pod {
	t.Helper()
	vm := t.createVM(v1.RunStrategyHalted, "old")
	before := vm.DeepCopy()
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
	for _, name := range []string{"root", "old"} {
		vm.Spec.Template.Spec.Domain.Devices.Disks = append(vm.Spec.Template.Spec.Domain.Devices.Disks, v1.Disk{
			Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
	}
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	_, pod := t.run("node01")
	t.changeVMI(func(s *v1.VirtualMachineInstanceStatus) {
		for i := range s.VolumeStatus {
			s.VolumeStatus[i].Size = 1 << 20
		}
		s.Conditions = append(s.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
		})
	})
	return pod
}

// volume sets what the VM's volume old is of.
func (t *test) volume(source v1.VolumeSource) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		volumes := vm.Spec.Template.Spec.Volumes
		volumes[slices.IndexFunc(volumes, func(v v1.Volume) bool { return v.Name == "old" })].VolumeSource = source
	}
}

// exchange changes the VM's spec.
func (t *test) exchange(change func(*v1.VirtualMachine)) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("demo"), vm))
	before := vm.DeepCopy()
	change(vm)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
}

// waitCopy waits until the VMI says of its disks what it is to say.
func (t *test) waitCopy(reason, message string) {
	t.Helper()
	t.waitVMI(reason+": "+message, func(vmi *v1.VirtualMachineInstance) bool {
		c := conditions.Find(vmi.Status.Conditions, volumemigration.Condition)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, message)
	})
}

// waitVolumeMigration waits for the migration with which disks are copied.
func (t *test) waitVolumeMigration() *v1.VirtualMachineInstanceMigration {
	t.Helper()
	var found *v1.VirtualMachineInstanceMigration
	t.eventually("migration", func() (bool, error) {
		var list v1.VirtualMachineInstanceMigrationList
		err := cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace),
			client.MatchingLabels{v1.VolumesUpdateMigration: "demo"})
		for i := range list.Items {
			if m := &list.Items[i]; m.DeletionTimestamp == nil && !m.IsFinal() {
				found = m
			}
		}
		return found != nil, err
	})
	return found
}

func mountsClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
