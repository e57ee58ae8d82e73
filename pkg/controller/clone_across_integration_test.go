//go:build integration

package controller

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/clonecontroller"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// TestCloneAcross runs alone: for the others there are no VolumeSnapshots. It clones a VM that is off to another
// namespace, and takes such a clone back while it is under way.
func TestCloneAcross(tt *testing.T) {
	from := newSerialTest(tt)
	from.storageClass("csi", "csi.example")
	from.installSnapshots()
	from.boundClaim("data", "csi")
	vm := from.createVM(v1.RunStrategyManual, "data")
	to := &test{T: tt, ctx: from.ctx, namespace: from.namespace + "-target"}
	to.must(cluster.CreateNamespace(to.ctx, to.namespace))

	c := to.cloneFrom("crossing", from.namespace, string(vm.UID))
	origin := from.cutForClone(c, "handle-1")
	copied, binding := to.copied(c)
	if ref := binding.Spec.VolumeSnapshotRef; ref.UID != copied.UID || ref.Namespace != to.namespace ||
		binding.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain ||
		*binding.Spec.Source.SnapshotHandle != "handle-1" || binding.Labels[clones.UIDLabel] != string(c.UID) {
		tt.Errorf("what is bound to the copy is %+v", binding)
	}
	to.cut(copied, "")
	restore := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: to.namespace, Name: clonecontroller.RestoreName(c)},
	}
	to.waitThere(restore)
	made := to.bind("restore-" + string(restore.UID) + "-data")
	if made.Spec.DataSource == nil || made.Spec.DataSource.Name != copied.Name {
		tt.Errorf("the claim of the new VM is %+v", made.Spec)
	}
	to.waitClone(c, "succeeded", func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
		return s.Phase == clonev1beta1.Succeeded && s.SnapshotName == nil && s.RestoreName == nil
	})
	clone := &v1.VirtualMachine{}
	to.must(cluster.Client.Get(to.ctx, to.key("copy"), clone))
	claim := clone.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim
	if claim == nil || claim.ClaimName != made.Name || *clone.Spec.RunStrategy != v1.RunStrategyHalted {
		tt.Errorf("the copy is %+v", clone.Spec)
	}
	// The rest of the copy is its VirtualMachineSnapshot's, with which a garbage collector takes it away.
	local := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: to.namespace, Name: clonecontroller.SnapshotName(c)},
	}
	for _, part := range []client.Object{origin, local, binding, restore} {
		to.waitGone(part)
	}
	if owner := metav1.GetControllerOf(copied); owner == nil || owner.Name != local.Name {
		tt.Errorf("the copied VolumeSnapshot is owned by %+v", owner)
	}
	from.waitVM("as it was", func(now *v1.VirtualMachine) bool {
		return unlocked(now) && now.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName == "data"
	})
	to.quiet()
	to.must(cluster.Client.Delete(to.ctx, c))
	to.waitGone(c)
	to.must(cluster.Client.Get(to.ctx, to.key(made.Name), &corev1.PersistentVolumeClaim{}))

	// One that is deleted amid it leaves nothing in either namespace.
	c = to.cloneFrom("cancelled", from.namespace, string(vm.UID))
	origin = from.cutForClone(c, "handle-2")
	_, binding = to.copied(c)
	to.must(cluster.Client.Delete(to.ctx, c))
	for _, part := range []client.Object{c, origin, binding} {
		to.waitGone(part)
	}
	from.waitVM("unlocked", unlocked)

	// virt-api lets pass who may clone from there, and writes the source's UID.
	for name, uid := range map[string]string{"unadmitted": "", "of-another": "another"} {
		c = to.cloneFrom(name, from.namespace, uid)
		to.waitClone(c, "refused", func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
			return s.Phase == clonev1beta1.Failed
		})
		said := c.Status.Conditions[0].Message
		if !strings.Contains(said, "has not admitted") && !strings.Contains(said, "is not the one that the clone was") {
			tt.Errorf("%s: %s", name, said)
		}
	}
	var left v1beta1.VirtualMachineSnapshotList
	from.must(cluster.Client.List(from.ctx, &left, client.InNamespace(from.namespace)))
	if len(left.Items) > 0 {
		tt.Errorf("the source's namespace has snapshot %s", left.Items[0].Name)
	}
	to.quiet()
}

// cloneFrom makes a clone, named copy, of the VM demo in another namespace. uid is what virt-api would write.
func (t *test) cloneFrom(name, namespace, uid string) *clonev1beta1.VirtualMachineClone {
	t.Helper()
	machine := func(name string) *corev1.TypedLocalObjectReference {
		return &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: name}
	}
	target := "copy"
	if name != "crossing" {
		target = "copy-" + name
	}
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace, Name: name, Annotations: map[string]string{clones.NamespaceAnnotation: namespace},
	}}
	if uid != "" {
		c.Annotations[clones.UIDAnnotation] = uid
	}
	c.Spec.Source, c.Spec.Target = machine("demo"), machine(target)
	t.must(cluster.Client.Create(t.ctx, c))
	return c
}

// cutForClone plays the CSI driver for the snapshot that a clone takes in the source's namespace.
func (t *test) cutForClone(c *clonev1beta1.VirtualMachineClone, handle string) *v1beta1.VirtualMachineSnapshot {
	t.Helper()
	origin := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: clonecontroller.SnapshotName(c)},
	}
	t.waitThere(origin)
	if origin.Labels[clones.UIDLabel] != string(c.UID) {
		t.Errorf("the snapshot in the source's namespace has the labels %v", origin.Labels)
	}
	t.bindCut(t.volumeSnapshot(origin, "data"), handle)
	return origin
}

// bindCut plays the CSI driver for a VolumeSnapshot.
func (t *test) bindCut(cut *snapshotv1.VolumeSnapshot, handle string) {
	t.Helper()
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "bound-" + handle}}
	content.Spec = snapshotv1.VolumeSnapshotContentSpec{
		Driver: "csi.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		VolumeSnapshotClassName: new("snap"),
		Source:                  snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("volume")},
		VolumeSnapshotRef:       corev1.ObjectReference{Namespace: cut.Namespace, Name: cut.Name, UID: cut.UID},
	}
	t.must(cluster.Client.Create(t.ctx, content))
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle, ReadyToUse: new(true)}
	t.must(cluster.Client.Status().Update(t.ctx, content))
	before := cut.DeepCopy()
	cut.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &content.Name}
	t.must(cluster.Client.Status().Patch(t.ctx, cut, client.MergeFrom(before)))
	before = cut.DeepCopy()
	cut.Status.ReadyToUse, cut.Status.CreationTime = new(true), new(metav1.Now())
	t.must(cluster.Client.Status().Patch(t.ctx, cut, client.MergeFrom(before)))
}

// copied waits for the copy of a clone's first VolumeSnapshot, and for what is bound to it.
func (t *test) copied(
	c *clonev1beta1.VirtualMachineClone,
) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	copied := &snapshotv1.VolumeSnapshot{}
	copied.Namespace, copied.Name = t.namespace, clones.VolumeName(c, 0)
	binding := &snapshotv1.VolumeSnapshotContent{}
	binding.Name = copied.Name
	t.waitThere(copied)
	t.waitThere(binding)
	return copied, binding
}
