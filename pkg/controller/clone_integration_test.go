//go:build integration

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/clonecontroller"
)

// TestClone runs alone: for the others there are no VolumeSnapshots. It clones a VM that is off, and then again to the
// same name, which fails and leaves nothing.
func TestClone(tt *testing.T) {
	t := newSerialTest(tt)
	t.storageClass("csi", "csi.example")
	t.installSnapshots()
	t.boundClaim("data", "csi")
	vm := t.createVM(v1.RunStrategyManual, "data")
	c := t.clone("first", "copy")
	snapshot := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: clonecontroller.SnapshotName(c)},
	}
	t.waitThere(snapshot)
	cut := t.volumeSnapshot(snapshot, "data")
	t.cut(cut, "")
	t.waitSnapshot(snapshot, "made", succeeded)
	restore := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: clonecontroller.RestoreName(c)},
	}
	t.waitThere(restore)
	made := t.bind("restore-" + string(restore.UID) + "-data")
	t.waitClone(c, "succeeded, and its temporary objects forgotten",
		func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
			return s.Phase == clonev1beta1.Succeeded && s.SnapshotName == nil && s.RestoreName == nil &&
				s.CreationTime != nil
		})
	copied := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("copy"), copied))
	if claim := copied.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; claim.ClaimName != made.Name ||
		*copied.Spec.RunStrategy != v1.RunStrategyHalted {
		t.Errorf("the copy is %+v", copied.Spec)
	}
	t.must(cluster.Client.Get(t.ctx, t.key(made.Name), made))
	if made.Spec.DataSource == nil || made.Spec.DataSource.Name != cut.Name || len(made.OwnerReferences) > 0 {
		t.Errorf("its claim, which is no VM's as the source's is none, is %+v", made)
	}
	t.waitGone(snapshot)
	t.waitGone(restore)
	t.waitVM("as it was", func(now *v1.VirtualMachine) bool {
		return unlocked(now) && now.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName == "data" &&
			now.UID == vm.UID
	})
	t.quiet()

	// Without webhooks the clone itself says that the name is taken.
	second := t.clone("second", "copy")
	t.waitClone(second, "failed", func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
		return s.Phase == clonev1beta1.Failed &&
			strings.Contains(s.Conditions[0].Message, "/copy exists, and this clone did not make it")
	})
	snapshot.Name = clonecontroller.SnapshotName(second)
	if err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(snapshot), snapshot); !apierrors.IsNotFound(err) {
		t.Errorf("it left a snapshot: %v", err)
	}
	t.quiet()

	// A name that is taken while the clone is under way fails it, too, and takes away what it has made.
	third := t.clone("third", "late")
	snapshot.Name = clonecontroller.SnapshotName(third)
	t.waitThere(snapshot)
	late := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "late"}, Spec: *vm.Spec.DeepCopy(),
	}
	t.must(cluster.Client.Create(t.ctx, late))
	t.waitClone(third, "failed", func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
		return s.Phase == clonev1beta1.Failed
	})
	t.waitGone(snapshot)
	var claims corev1.PersistentVolumeClaimList
	t.must(cluster.Client.List(t.ctx, &claims, client.InNamespace(t.namespace)))
	if len(claims.Items) != 2 {
		t.Errorf("%d claims, want the VM's and its copy's: %+v", len(claims.Items), claims.Items)
	}
	t.quiet()
}

func (t *test) clone(name, target string) *clonev1beta1.VirtualMachineClone {
	t.Helper()
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
	machine := func(name string) *corev1.TypedLocalObjectReference {
		return &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: name}
	}
	c.Spec.Source, c.Spec.Target = machine("demo"), machine(target)
	t.must(cluster.Client.Create(t.ctx, c))
	return c
}

func (t *test) waitClone(c *clonev1beta1.VirtualMachineClone, what string,
	is func(*clonev1beta1.VirtualMachineCloneStatus) bool,
) {
	t.Helper()
	t.eventually("clone: "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(c), c)
		return err == nil && is(&c.Status), err
	})
}

// waitThere waits until an object exists.
func (t *test) waitThere(object client.Object) {
	t.Helper()
	t.eventually("there: "+object.GetName(), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(object), object)
		return err == nil, client.IgnoreNotFound(err)
	})
}
